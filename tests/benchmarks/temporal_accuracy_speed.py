"""TemporalAccuracy against a function per batch and against one torchmetrics object a timestep."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torchmetrics.classification import MulticlassAccuracy

from dynmetrics import TemporalAccuracy
from tests.benchmarks.measuring import Row, compare

SHAPES = [(256, 20, 100), (64, 30, 1000), (512, 50, 10)]


def run() -> list[Row]:
    """One update of a batch with a quarter of the labels masked."""
    rows = []
    for b, t, c in SHAPES:
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(b, t, c, generator=generator)
        labels = torch.randint(c, (b, t), generator=generator)
        labels[torch.rand(b, t, generator=generator) < 0.25] = -1
        metric = TemporalAccuracy()
        objects = [
            MulticlassAccuracy(c, average="micro", ignore_index=-1, validate_args=False)
            for _ in range(t)
        ]
        name = f"TemporalAccuracy.update {(b, t, c)}"
        ours = partial(metric.update, logits, labels)
        function = partial(accuracy_by_loop, logits, labels)
        rows.append(compare(name, "a function per batch, t by t", ours, function, goal=">= 4"))
        per_step = partial(update_each, objects, logits, labels)
        rows.append(compare(name, "T MulticlassAccuracy", ours, per_step, goal=">= 8"))
    return rows


def accuracy_by_loop(logits: Tensor, labels: Tensor) -> list[float]:
    """The usual one-shot function: a loop over timesteps, each read back to the host."""
    curve = []
    for t in range(logits.shape[1]):
        valid = labels[:, t] >= 0
        if not valid.any():
            curve.append(0.0)
            continue
        guesses = logits[:, t].argmax(-1)[valid]
        curve.append((guesses == labels[:, t][valid]).float().mean().item())
    return curve


def update_each(objects: list[MulticlassAccuracy], logits: Tensor, labels: Tensor) -> None:
    """One object of torchmetrics for every timestep."""
    for t, metric in enumerate(objects):
        metric.update(logits[:, t], labels[:, t])
