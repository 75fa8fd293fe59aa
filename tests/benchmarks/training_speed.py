"""What the callback costs a training step: a real Trainer, steps with and without it in turn."""

from __future__ import annotations

import gc
import logging
import time
import warnings
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from dynmetrics import (
    Accuracy,
    AreaUnderAccuracy,
    DecisionLatency,
    FlipRate,
    MetricSuite,
    TemporalAccuracy,
    TemporalConfidence,
    TemporalPrecision,
    TemporalRecall,
)
from dynmetrics.training import MetricsCallback
from tests.benchmarks.measuring import Row

STEP_MS = 20.0
BATCH, T, CLASSES = 64, 20, 10
PAIRS, WARM_UP = 200, 10
GOAL = ">= 0.97"


def run() -> list[Row]:
    """Ten metrics of one kind, ten of many, and none: the share of the callback itself."""
    same = MetricSuite({f"accuracy{i}": TemporalAccuracy() for i in range(10)})
    return [
        overhead("10 TemporalAccuracy", same),
        overhead("10 metrics of 9 classes", MetricSuite(many())),
        overhead("no metric", MetricSuite({})),
    ]


def many() -> dict[str, Any]:
    """What the training of a recurrent classifier might watch."""
    return {
        "accuracy": TemporalAccuracy(confidence=0.95),
        "top5": TemporalAccuracy(top_k=5),
        "pooled": Accuracy(),
        "confidence": TemporalConfidence(kinds=("guess",)),
        "precision": TemporalPrecision(num_classes=CLASSES),
        "recall": TemporalRecall(num_classes=CLASSES),
        "area": AreaUnderAccuracy(),
        "flips": FlipRate(),
        "latency": DecisionLatency(),
        "last": TemporalAccuracy(average="macro", num_classes=CLASSES),
    }


class Step(LightningModule):
    """A readout over time, and recurrent work until the step has lasted long enough."""

    def __init__(self) -> None:
        super().__init__()
        self.readout = nn.Linear(CLASSES, CLASSES)
        self.recurrent = nn.Linear(256, 256).requires_grad_(False)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        end = time.perf_counter() + 1e-3 * STEP_MS
        preds = self.readout(batch["x"])
        loss = nn.functional.cross_entropy(
            preds.flatten(0, 1), batch["y"].flatten(), ignore_index=-1
        )
        state = torch.zeros(BATCH, 256)
        while time.perf_counter() < end:
            state = torch.relu(self.recurrent(state))
        return {"loss": loss, "preds": preds.detach(), "target": batch["y"]}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class EveryOther(MetricsCallback):
    """Leaves out every second step, and times them all, from the batch to the end of its hook."""

    def __init__(self, suite: MetricSuite) -> None:
        super().__init__(suite, figures=False, verbose=False)
        self.seconds: list[float] = []
        self._start = 0.0

    def on_train_batch_start(self, *_: Any) -> None:
        self._start = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx % 2 == 0:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        self.seconds.append(time.perf_counter() - self._start)


def overhead(name: str, suite: MetricSuite) -> Row:
    """Medians of the steps with and without, and the quartiles of their paired ratio."""
    generator = torch.Generator().manual_seed(0)
    batch: Any = {
        "x": torch.randn(BATCH, T, CLASSES, generator=generator),
        "y": torch.randint(-1, CLASSES, (BATCH, T), generator=generator),
    }
    callback = EveryOther(suite)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = Trainer(
                accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
                enable_progress_bar=False, enable_model_summary=False, callbacks=[callback],
            )  # fmt: skip
            gc.collect()
            batches: Any = [batch] * (2 * (PAIRS + WARM_UP))
            trainer.fit(Step(), DataLoader(batches, batch_size=None))
    finally:
        torch.set_num_threads(threads)
    pairs = np.array(callback.seconds).reshape(-1, 2)[WARM_UP:]
    ratios = pairs[:, 1] / pairs[:, 0]
    low, middle, high = map(float, np.quantile(ratios, [0.25, 0.5, 0.75]))
    ours, bare = map(float, 1e3 * np.median(pairs, axis=0))
    what = f"training step of {STEP_MS:g} ms with the callback, {name}"
    return Row(what, "the step without", ours, bare, middle, low, high, GOAL)
