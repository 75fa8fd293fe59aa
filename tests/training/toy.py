"""A model and data whose exact results can be counted by hand."""

from __future__ import annotations

from typing import Any

import lightning
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from dynmetrics import MetricSuite, TemporalAccuracy

CLASSES = 4


class Scores(Dataset[dict[str, Tensor]]):
    """Scores (T, C) that the model only scales, so that training changes no guess."""

    def __init__(self, n: int, steps: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.scores = torch.tensor(rng.normal(size=(n, steps, CLASSES)), dtype=torch.float32)
        self.labels = torch.tensor(rng.integers(-1, CLASSES, size=(n, steps)))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return {"scores": self.scores[i], "labels": self.labels[i]}

    def tuples(self, batch_size: int) -> list[tuple[Tensor, Tensor]]:
        """Batches (scores, labels)."""
        parts = torch.split(self.scores, batch_size), torch.split(self.labels, batch_size)
        return list(zip(*parts, strict=True))

    def accuracy(self, start: int = 0, stop: int | None = None) -> tuple[float, list[float]]:
        """The pooled accuracy and the curve over time of some of the items, counted one by one."""
        right, valid = [0] * self.labels.shape[1], [0] * self.labels.shape[1]
        for scores, labels in zip(self.scores[start:stop], self.labels[start:stop], strict=True):
            for t, (row, label) in enumerate(zip(scores.tolist(), labels.tolist(), strict=True)):
                valid[t] += label >= 0
                right[t] += label == row.index(max(row))
        curve = [r / v if v else float("nan") for r, v in zip(right, valid, strict=True)]
        return sum(right) / sum(valid), curve


class Scaling(lightning.LightningModule):
    """Multiplies the scores by a positive number that it learns."""

    def __init__(self, loaders: int = 1, fail_at: int | None = None) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.loaders = loaders
        self.fail_at = fail_at

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        if self.fail_at is not None and self.global_step >= self.fail_at:
            raise RuntimeError("out of luck")
        return self._step(batch)

    def validation_step(
        self, batch: dict[str, Tensor], batch_idx: int, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        step = self._step(batch)
        self.log("val_loss", step["loss"], batch_size=len(batch["labels"]), sync_dist=True)
        return step

    def test_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        return self._step(batch)

    def _step(self, batch: dict[str, Tensor]) -> dict[str, Any]:
        preds = batch["scores"] * self.log_scale.exp()
        loss = nn.functional.cross_entropy(
            preds.flatten(0, 1), batch["labels"].flatten(), ignore_index=-1
        )
        return {"loss": loss, "preds": preds.detach(), "target": batch["labels"]}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def loader(data: Scores, batch_size: int = 4) -> DataLoader[dict[str, Tensor]]:
    """The items in their order."""
    return DataLoader(data, batch_size=batch_size)


def suite() -> MetricSuite:
    """Accuracy over time, for the first and the two best guesses."""
    return MetricSuite({"accuracy": TemporalAccuracy(top_k=(1, 2))})


def trainer(folder: Any, **options: Any) -> lightning.Trainer:
    """A quiet trainer on the CPU."""
    defaults: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 2,
        "default_root_dir": folder,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 1,
        "logger": False,
        "enable_checkpointing": False,
    }
    return lightning.Trainer(**{**defaults, **options})
