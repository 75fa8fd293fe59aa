"""Rows with a capacity: what more of them do, what they cost, and that samples merge exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from dynmetrics.core import BY_DATA, StreamingMetric
from dynmetrics.core.checks import check_tensor, describe, refuse
from dynmetrics.core.rows import _MOST_CHUNKS, Rows, lowest, row_priorities
from dynmetrics.core.state import stacked_rows
from tests.contract import Batch, MetricContract
from tests.core.toys import Rows as KeptRows

CAPACITY = 6
MASK = (1 << 64) - 1


class Window(StreamingMetric):
    """The weighted sum of the latest rows, the last of which weighs most."""

    features: list[Tensor]

    def __init__(self, *, capacity: int = CAPACITY, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_rows("features", (BY_DATA,), torch.float64, capacity, "ring")

    @property
    def axes(self) -> tuple[str, ...]:
        return ("D",)

    def update(self, features: Tensor) -> None:
        check_tensor("features", features, self.device)
        if features.ndim != 2:
            raise refuse("features", "the shape (N, D)", describe(features))
        self.accumulate(features=features.double())

    def compute(self) -> Tensor:
        rows = stacked_rows(self.state_specs["features"], self.features, self.device)
        return torch.arange(1, len(rows) + 1, dtype=torch.float64) @ rows


class Sample(StreamingMetric):
    """The sum of a random sample of rows and labels, and its size."""

    features: list[Tensor]
    labels: list[Tensor]
    priority: list[Tensor]

    def __init__(self, *, capacity: int = CAPACITY, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.capacity = capacity
        self.seed = seed
        columns = {"features": ((BY_DATA,), torch.float32), "labels": ((), torch.int64)}
        self.add_reservoir(columns, capacity, by="priority")

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        return {"total": ("D",), "labels": (), "n": ()}

    def update(self, features: Tensor, labels: Tensor) -> None:
        check_tensor("features", features, self.device)
        if features.ndim != 2 or labels.shape != features.shape[:1]:
            raise refuse("features", "the shape (N, D) beside labels (N,)", describe(features))
        features, labels = features.float(), labels.long()
        priority = row_priorities(self.seed, features, labels)
        self.accumulate(features=features, labels=labels, priority=priority)

    def compute(self) -> dict[str, Tensor]:
        features, labels, priority = (
            stacked_rows(spec, getattr(self, name), self.device)
            for name, spec in self.state_specs.items()
        )
        kept = lowest(priority, self.capacity)
        total = features[kept].double().sum(0)
        return {"total": total, "labels": labels[kept].sum(), "n": torch.tensor(len(kept))}


class TestRing(MetricContract):
    optout: ClassVar[dict[str, str]] = {
        "any_split_in_any_order": "the latest rows depend on the order",
        "merge_in_every_direction": "the latest rows depend on the order",
        "merge_of_a_dict_of_states": "the latest rows depend on the order",
        "ranks_equal_one_process": "every rank has its own latest rows",
        "counts_beyond_float32": "nothing is counted",
    }

    def make(self) -> StreamingMetric:
        return Window()

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        return [{"features": torch.tensor(rng.normal(size=(n, 3)))} for n in (4, 1, 0, 3, 9, 2)]

    def reference(self, batches: list[Batch]) -> Any:
        rows = [row for batch in batches for row in batch["features"].numpy()][-CAPACITY:]
        total = np.zeros(3 if rows else 0)
        for place, row in enumerate(rows):
            total = total + (place + 1) * row
        return total

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        return [(Window(), Window(capacity=2), {"features": torch.zeros(1, 3)})]

    def bad_inputs(self) -> list[Batch]:
        return [{"features": torch.zeros(3)}, {"features": torch.zeros(2, 4)}]

    def bad_options(self) -> list[Callable[[], Any]]:
        return []

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return torch.sum, [torch.ones(3)]


class TestReservoir(MetricContract):
    optout: ClassVar[dict[str, str]] = {"counts_beyond_float32": "nothing is counted"}

    def make(self) -> StreamingMetric:
        return Sample()

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        return [
            {
                "features": torch.tensor(rng.normal(size=(n, 3)).astype(np.float32)),
                "labels": torch.tensor(rng.integers(0, 9, n)),
            }
            for n in (4, 1, 0, 9, 15)
        ]

    def reference(self, batches: list[Batch]) -> Any:
        rows = [
            (features, int(label))
            for batch in batches
            for features, label in zip(
                batch["features"].numpy(), batch["labels"].numpy(), strict=True
            )
        ]
        rows = sorted(rows, key=lambda row: priority_by_hand(0, *row))[:CAPACITY]
        total = np.zeros(3 if rows else 0)
        for features, _ in rows:
            total = total + features.astype(np.float64)
        labels = np.int64(sum(label for _, label in rows))
        return {"total": total, "labels": labels, "n": np.int64(len(rows))}

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"features": torch.zeros(1, 3), "labels": torch.zeros(1, dtype=torch.int64)}
        return [(Sample(), Sample(seed=1), first)]

    def bad_inputs(self) -> list[Batch]:
        two = torch.zeros(2, dtype=torch.int64)
        return [
            {"features": torch.zeros(3, 3), "labels": two},
            {"features": torch.zeros(2, 4), "labels": two},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return []

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return row_priorities, [3, torch.ones(4, 2), torch.arange(4)]


def priority_by_hand(seed: int, features: np.ndarray[Any, Any], label: int) -> int:
    """SplitMix64's finaliser over the bits of a row, in whole numbers of any size."""

    def mixed(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        return x ^ (x >> 31)

    total = 0
    bits = [int(b) for b in features.astype(np.float32).view(np.int32)]
    for number, column in enumerate((bits, [label])):
        salts = [
            mixed(place + ((seed * 1_000_003 + number) << 24) % (1 << 62))
            for place in range(len(column))
        ]
        folded = sum(mixed((bit + salt) & MASK) for bit, salt in zip(column, salts, strict=True))
        total = mixed((total + folded) & MASK)
    return total - (1 << 64) if total >> 63 else total


def test_a_sample_is_uniform() -> None:
    """Every row is kept equally often over the seeds, and every pair nearly so."""
    values, labels = torch.arange(20.0)[:, None], torch.zeros(20, dtype=torch.int64)
    kept = torch.zeros(20)
    for seed in range(2000):
        order = lowest(row_priorities(seed, values, labels), 5)
        kept[order] += 1
    # 2000 draws of probability 1/4: a standard deviation of 19.4.
    assert (kept - 500).abs().max() < 4 * 19.4


def test_priorities_see_every_column_and_place() -> None:
    one = torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [0.0, 0.0], [-0.0, 0.0]])
    labels = torch.tensor([0, 0, 1, 0, 0])
    a, b, c, zero, minus = row_priorities(0, one, labels).tolist()
    assert len({a, b, c, zero}) == 4
    assert zero == minus
    assert row_priorities(1, one, labels)[0] != a


def test_an_update_costs_the_same_after_many() -> None:
    """A chunk joins others at most a logarithmic number of times."""
    rows, copied = Rows(), 0
    steps = 40 * _MOST_CHUNKS
    for _ in range(steps):
        before = rows
        rows = rows.followed_by(torch.zeros(1))
        assert len(rows) <= _MOST_CHUNKS
        if len(rows) < len(before):
            copied += len(rows[-1])
    assert rows.total == sum(map(len, rows)) == steps
    assert copied <= 6 * steps
    joins = [len(chunk) for chunk in rows[: rows.joined]]
    assert joins == sorted(joins, reverse=True)


def test_rows_stay_in_order_when_chunks_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynmetrics.core.rows._MOST_CHUNKS", 16)
    rows = Rows()
    for i in range(200):
        rows = rows.followed_by(torch.full((1 + i % 3,), float(i)))
        window = rows.latest(7)
        assert len(rows) <= 16
        assert torch.equal(torch.cat(window), torch.cat(rows)[-7:])
        assert window.total == min(7, rows.total)


def test_old_rows_survive_new_ones() -> None:
    metric = KeptRows()
    labels = torch.zeros(2, dtype=torch.int64)
    metric.update(torch.ones(2, 3), labels)
    before = metric.snapshot()
    metric.update(torch.ones(2, 3), labels)
    assert [len(chunk) for chunk in before["features"]] == [2]
    assert metric.memory_bytes() == 4 * (3 * 4 + 8)


def test_rows_are_not_the_callers_own() -> None:
    metric, batch = KeptRows(), torch.ones(2, 3)
    metric.update(batch, torch.zeros(2, dtype=torch.int64))
    batch.fill_(7)
    assert metric.compute()["total"].tolist() == [2.0, 2.0, 2.0]


def test_too_many_rows_are_an_error() -> None:
    metric = KeptRows(capacity=3)
    labels = torch.zeros(2, dtype=torch.int64)
    metric.update(torch.ones(2, 3), labels)
    with pytest.raises(ValueError, match="features: expected at most capacity=3 rows, got 4 rows"):
        metric.update(torch.ones(2, 3), labels)
    assert int(metric.compute()["n"]) == 2


def test_a_reservoir_holds_at_most_twice_its_capacity() -> None:
    metric = Sample()
    for _ in range(50):
        metric.update(torch.randn(5, 3), torch.zeros(5, dtype=torch.int64))
        assert metric.memory_bytes() <= 2 * CAPACITY * (3 * 4 + 8 + 8)
    assert int(metric.compute()["n"]) == CAPACITY
