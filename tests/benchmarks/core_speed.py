"""What the core costs: synchronisation, the wrapper around an update, and the import."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from dynmetrics import MetricSuite, StreamingMetric
from tests.benchmarks.measuring import Row, compare
from tests.ranks import run_ranks

STEPS, CLASSES, BATCH = 50, 5, 8


def run() -> list[Row]:
    """All of it."""
    return [*synchronisation(), *wrapper(), *imports()]


# --------------------------------------------------------------------------- ten metrics, synced


class Plain(Metric):
    """Two sums of torchmetrics."""

    full_state_update = False
    total: Tensor
    n: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(STEPS), "sum")
        self.add_state("n", torch.zeros(STEPS), "sum")

    def update(self, value: Tensor) -> None:
        self.total = self.total + value.sum(0)
        self.n = self.n + (value == value).sum(0)

    def compute(self) -> Tensor:
        return self.total / self.n


class Ours(StreamingMetric):
    """The same two sums, declared to the core."""

    total: Tensor
    n: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_sum("total", (STEPS,))
        self.add_counts("n", (STEPS,))

    @property
    def axes(self) -> tuple[str, ...]:
        return ("T",)

    def update(self, value: Tensor) -> None:
        self.accumulate(total=value.sum(0), n=(value == value).sum(0))

    def compute(self) -> Tensor:
        return self.total / self.n


def _two_ranks(_rank: int) -> Row:
    value = torch.rand(16, STEPS)
    suite = MetricSuite({f"m{i}": Ours() for i in range(10)})
    collection = MetricCollection({f"m{i}": Plain() for i in range(10)}, compute_groups=False)
    suite.update(value=value)
    collection.update(value)

    def ours() -> None:
        suite.compute()

    def theirs() -> None:
        for metric in collection.values():
            metric._computed = None
        collection.compute()

    dist.barrier()
    return compare(
        "compute of 10 metrics x 2 sums, 2 gloo ranks", "MetricCollection", ours, theirs,
        rounds=41, goal=">= 20",
    )  # fmt: skip


def synchronisation() -> list[Row]:
    """One suite against one collection of the same states on two real ranks."""
    rows: list[Row] = run_ranks(_two_ranks, 2)
    return rows[:1]


# -------------------------------------------------------------------------- the wrapper's share


class PlainCounter:
    """The tensor work of a tiny metric without any metric around it."""

    def __init__(self) -> None:
        self.counts = torch.zeros(2, STEPS, dtype=torch.int64)

    def update(self, guess: Tensor, labels: Tensor) -> None:
        """Right and labelled answers at every timestep."""
        self.counts = self.counts + counts_of(guess, labels)


class Counter(StreamingMetric):
    """The same work as a metric."""

    counts: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_counts("counts", (2, STEPS))

    @property
    def axes(self) -> tuple[str, ...]:
        return ("R", "T")

    def update(self, guess: Tensor, labels: Tensor) -> None:
        self.accumulate(counts=counts_of(guess, labels))

    def compute(self) -> Tensor:
        return self.counts


class TorchmetricsCounter(Metric):
    """The same work as a metric of torchmetrics."""

    full_state_update = False
    counts: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(2, STEPS, dtype=torch.int64), "sum")

    def update(self, guess: Tensor, labels: Tensor) -> None:
        self.counts = self.counts + counts_of(guess, labels)

    def compute(self) -> Any:
        return self.counts


def counts_of(guess: Tensor, labels: Tensor) -> Tensor:
    """Right and labelled answers at every timestep: (2, T)."""
    return torch.stack([guess == labels, labels >= 0]).sum(1)


def wrapper() -> list[Row]:
    """How many times slower a metric is than the plain object; a ratio below 1 is slower."""
    guess = torch.randint(CLASSES, (BATCH, STEPS))
    labels = torch.randint(-1, CLASSES, (BATCH, STEPS))
    plain, metric, theirs = PlainCounter(), Counter(), TorchmetricsCounter()
    name = f"update of a tiny metric, counts (2, {STEPS})"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            compare(
                name, "plain object", lambda: metric.update(guess, labels),
                lambda: plain.update(guess, labels), calls=200, goal=">= 0.67",
            ),
            compare(
                name, "Metric of torchmetrics", lambda: metric.update(guess, labels),
                lambda: theirs.update(guess, labels), calls=200,
            ),
        ]  # fmt: skip


# -------------------------------------------------------------------------------------- import


def imports(rounds: int = 9) -> list[Row]:
    """A fresh process that imports the library, against one that imports torchmetrics."""
    pairs = np.array([[_import("dynmetrics"), _import("torchmetrics")] for _ in range(rounds)])
    ratios = pairs[:, 1] / pairs[:, 0]
    low, middle, high = map(float, np.quantile(ratios, [0.25, 0.5, 0.75]))
    ours, theirs = map(float, 1e3 * np.median(pairs, axis=0))
    return [Row("import", "import torchmetrics", ours, theirs, middle, low, high, ">= 0.87")]


def _import(module: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    return time.perf_counter() - start
