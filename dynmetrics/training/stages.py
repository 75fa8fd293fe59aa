"""What the stages of a Lightning Trainer are called, and how they end."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Mapping

from lightning.pytorch import Callback, Trainer
from torch import Tensor


def suite_keys(stage: str, trainer: Trainer) -> list[str]:
    """The names of a stage's suites, one for every dataloader, the same on every rank."""
    if stage == "train":
        return [stage]
    loaders = trainer.num_val_batches if stage == "val" else trainer.num_test_batches
    if trainer.sanity_checking:
        loaders = trainer.num_sanity_val_batches
    if len(loaders) == 1:
        return [stage]
    return [f"{stage}_loader{i}" for i in range(len(loaders))]


def checks_everything(trainer: Trainer) -> bool:
    """Whether the sanity check covers the whole validation set: then it is row 0."""
    return trainer.num_sanity_val_steps == float("inf")


def keep_quiet_about(scalars: Mapping[str, float]) -> None:
    """They are equal on all ranks already; Lightning would advise to synchronise them."""
    names = "|".join(map(re.escape, scalars))
    message = rf"It is recommended to use `self\.log\('({names})', .*sync_dist"
    warnings.filterwarnings("ignore", message=message)


def stop_reason(trainer: Trainer) -> str:
    """Why training has ended, as a person would say it."""
    if trainer.max_steps != -1 and trainer.global_step >= trainer.max_steps:
        return f"max_steps={trainer.max_steps} completed"
    if trainer.max_epochs is not None and trainer.current_epoch >= trainer.max_epochs >= 0:
        return f"max_epochs={trainer.max_epochs} completed"
    callbacks: list[Callback] = getattr(trainer, "callbacks", [])
    stopped = [callback for callback in callbacks if getattr(callback, "stopped_epoch", 0)]
    if stopped:
        return f"{type(stopped[0]).__name__} on {getattr(stopped[0], 'monitor', 'its criterion')}"
    return "should_stop was set"


def log_interval(trainer: Trainer) -> int:
    """After how many steps values of single batches are noted."""
    return max(1, int(getattr(trainer, "log_every_n_steps", 1)))


def logged_by_module(stage: str, trainer: Trainer, ours: Collection[str]) -> dict[str, Tensor]:
    """What the module itself has logged under names that begin with the stage."""
    if trainer.sanity_checking:
        return {}
    metrics = trainer.callback_metrics.items()
    return {n: value for n, value in metrics if n.startswith(f"{stage}_") and n not in ours}
