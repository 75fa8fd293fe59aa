"""Train a recurrent network on real images in two processes, with exact accuracy over time.

    python examples/train_recurrent_digits.py

Lightning starts the second process. One callback feeds, synchronises, logs and records the metrics.
`plain_loop.py` does the same job without Lightning and arrives at the same numbers.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from contextlib import closing
from typing import Any

import torch
from recurrent_digits import (
    RANKS,
    Loader,
    Screen,
    finish,
    loss_of,
    make_loaders,
    make_model,
    make_suite,
    parse_options,
)
from torch import Tensor

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.loggers import CSVLogger
    from lightning.pytorch.utilities import rank_zero_only

    from dynmetrics.training import History, MetricsCallback
except ImportError as error:
    raise SystemExit("this example needs Lightning: pip install 'dynmetrics[lightning]'") from error


class Digits(LightningModule):
    """The network, its loss and its data."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.options = options
        self.model, self.optimizer = make_model()

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """Loss of the labelled timesteps."""
        frames, labels = batch
        loss = loss_of(self.model(frames), labels)
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> dict[str, Tensor]:
        """What MetricsCallback takes: the inputs of the suite, by name."""
        frames, labels = batch
        logits = self.model(frames)
        # For comparison only, as it is often done: Lightning averages batches and processes.
        accuracy = (logits.argmax(-1) == labels)[labels >= 0].double().mean()
        self.log("val_self_log", accuracy, on_step=False, on_epoch=True, sync_dist=True)
        return {"preds": logits, "target": labels}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return self.optimizer

    def train_dataloader(self) -> Loader:
        """This process' share."""
        return make_loaders(self.options, self.global_rank)[0]

    def val_dataloader(self) -> Loader:
        """This process' share."""
        return make_loaders(self.options, self.global_rank)[1]


class OnScreen(Callback):
    """Shows the history while it grows, on the first process."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen

    @rank_zero_only
    def on_sanity_check_end(self, trainer: Trainer, *_: Any) -> None:
        """Row 0, before training."""
        self.screen.show()

    @rank_zero_only
    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Progress."""
        self.screen.advance(trainer.global_step / trainer.num_training_batches)

    @rank_zero_only
    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        """A row for each epoch."""
        self.screen.show()


def compare(history: History) -> None:
    """How far Lightning's average of the same run is from the exact accuracy."""
    epochs = [record.results for record in history if record.stage == "val" and record.epoch]
    means = torch.tensor([results["val_self_log"] for results in epochs])
    errors = means - torch.tensor([results["val_accuracy"] for results in epochs])
    worst = errors[errors.abs().argmax()]
    # Lightning weights a batch by its images, not by its labels; and over the uneven shares of two
    # processes it divides by a rounded number of images.
    print(
        f"self.log of batches {means[-1]:.4f}, off by {errors[-1]:+.4f} (at worst {worst:+.4f}): "
        "Lightning's mean of batch means"
    )


def main() -> None:
    options = parse_options("Train a recurrent network on digits in two processes", "demo")
    torch.set_num_threads(1)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (".*does not have many workers", "Experiment logs directory", ".*LeafSpec"):
        warnings.filterwarnings("ignore", message)

    metrics = MetricsCallback(make_suite(), train=False, verbose=False)
    screen = Screen(metrics.history, options.epochs)
    trainer = Trainer(
        accelerator="cpu",
        devices=RANKS,
        strategy="ddp",
        use_distributed_sampler=False,  # it would count some images twice
        max_epochs=options.epochs,
        num_sanity_val_steps=-1,  # all of them: row 0
        callbacks=[metrics, OnScreen(screen)],
        logger=CSVLogger(options.folder, name="", version="lightning"),
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    with closing(screen):
        trainer.fit(Digits(options))
    if trainer.is_global_zero:
        screen.show()
        finish(metrics.history, options.folder)
        compare(metrics.history)


if __name__ == "__main__":
    main()
