"""A Lightning module that logs metrics without the callback; as a script, a job of its own."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from dynmetrics import Accuracy, MetricSuite, TemporalAccuracy
from tests.core.toys import Mean

N_TRAIN, N_VAL, STEPS, CLASSES = 24, 21, 4, 3

SCALE = 100.0
"""Makes sums of labels too large for bfloat16, though no label is."""


class Logging(lightning.LightningModule):
    """Scores (B, T, C) go straight through one weight, which training leaves almost as it is."""

    def __init__(self, logged: str = "scalars") -> None:
        super().__init__()
        self.logged = logged
        self.weight = nn.Parameter(torch.ones(1))
        self.train_accuracy, self.accuracy = Accuracy(), Accuracy()
        self.curve = TemporalAccuracy()
        self.overall = TemporalAccuracy()["overall"]
        self.classes = Accuracy(average="none", num_classes=CLASSES)
        self.suite = MetricSuite(
            {"accuracy": Accuracy(), "curve": TemporalAccuracy(confidence=0.95), "mean": Mean()},
            prefix="suite_",
        )
        self.updates: list[tuple[int, int]] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        preds: Tensor = self.weight * batch[0]
        self.train_accuracy(preds, batch[1])
        self.log("train_accuracy", self.train_accuracy, on_step=False, on_epoch=True)
        loss: Tensor = preds.float().square().mean()
        return loss

    def on_train_epoch_start(self) -> None:
        self.train_accuracy.reset()

    def on_train_epoch_end(self) -> None:
        self.updates.append((self.current_epoch, self.train_accuracy.update_count))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        preds, target = self.weight * batch[0], batch[1]
        self.suite.update(preds=preds, target=target, value=SCALE * target.to(preds.dtype))
        if self.logged == "scalars":
            self.accuracy(preds, target)
            self.log("accuracy", self.accuracy)
            self.overall.update(preds, target)
            self.log("overall", self.overall)
        elif self.logged == "forward":
            self.log("classes", self.classes(preds, target))
        else:
            metric = getattr(self, self.logged)
            metric.update(preds, target)
            self.log(self.logged, metric)

    def on_validation_epoch_end(self) -> None:
        scalars = self.suite.scalars(curves=True)
        assert self.suite["curve"].update_count
        self.log_dict(scalars)
        self.suite.reset()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-6)


def data(n: int, seed: int) -> TensorDataset:
    """Scores that are right about half the time, more often so at later timesteps."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(CLASSES, (n, STEPS), generator=generator)
    hint = nn.functional.one_hot(target, CLASSES) * torch.arange(STEPS)[:, None] * 0.5
    return TensorDataset(torch.randn(n, STEPS, CLASSES, generator=generator) + hint, target)


def recount(data: TensorDataset) -> tuple[float, list[float], float]:
    """Accuracy of all items together and at every timestep, and the mean of the scaled labels."""
    right = (data.tensors[0].argmax(-1) == data.tensors[1]).double()
    return (
        float(right.mean()),
        right.mean(0).tolist(),
        float(data.tensors[1].double().mean() * SCALE),
    )


def share(n: int, rank: int, world_size: int) -> range:
    """A sampler without padding: every item once, on one rank."""
    return range(rank, n, world_size)


class Placed:
    """Batches of 4 that keep their place in a checkpoint, as a loader has to for Lightning."""

    def __init__(self, data: TensorDataset) -> None:
        self.data, self.place = data, 0

    def __len__(self) -> int:
        return len(self.data) // 4

    def __iter__(self) -> Iterator[Any]:
        for i in range(self.place, len(self)):
            self.place = (i + 1) % len(self)
            yield self.data[4 * i : 4 * (i + 1)]

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


def loaders(rank: int = 0, world_size: int = 1) -> tuple[DataLoader[Any], DataLoader[Any]]:
    return (
        DataLoader(data(N_TRAIN, 0), batch_size=4, sampler=share(N_TRAIN, rank, world_size)),
        DataLoader(data(N_VAL, 1), batch_size=4, sampler=share(N_VAL, rank, world_size)),
    )


def trainer(folder: Path, **options: Any) -> lightning.Trainer:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    defaults: dict[str, Any] = {
        "max_epochs": 2, "accelerator": "cpu", "devices": 1, "logger": CSVLogger(folder),
        "enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 1,
        "default_root_dir": folder, "enable_checkpointing": False,
    }  # fmt: skip
    return lightning.Trainer(**{**defaults, **options})


def main(folder: Path) -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    run = trainer(folder, devices=2, strategy="ddp", use_distributed_sampler=False)
    model = Logging()
    run.fit(model, *loaders(rank, 2))
    values = {name: float(value) for name, value in run.callback_metrics.items()}
    (folder / f"rank{rank}.json").write_text(json.dumps(values))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
