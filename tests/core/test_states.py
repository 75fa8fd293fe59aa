"""Every kind of state under every law: the toy metrics stand for metrics to come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from dynmetrics.core import StreamingMetric
from dynmetrics.core.moments import fold_moments
from tests.contract import Batch, MetricContract
from tests.core.toys import Extremes, Mean, Rows, Spread


def _batch_of(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.tensor(rng.normal(size=shape))


class TestSums(MetricContract):
    def make(self) -> StreamingMetric:
        return Mean()

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        return [{"value": _batch_of(rng, n)} for n in (4, 1, 0, 7)]

    def reference(self, batches: list[Batch]) -> Any:
        values = np.concatenate([batch["value"].numpy() for batch in batches])
        return np.float64(values.sum() / len(values)) if len(values) else np.float64(np.nan)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        return [(Mean(scale=1.0), Mean(scale=2.0), {"value": torch.zeros(3)})]

    def bad_inputs(self) -> list[Batch]:
        return [{"value": [1.0]}, {"value": torch.zeros(2, dtype=torch.complex64)}]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [lambda: Mean(network_output=3)]  # type: ignore[arg-type]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return torch.sum, [torch.ones(3)]


class TestMaximaAndMinima(MetricContract):
    optout: ClassVar[dict[str, str]] = {"counts_beyond_float32": "a maximum does not count"}

    def make(self) -> StreamingMetric:
        return Extremes()

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        return [{"value": _batch_of(rng, b, t)} for b, t in ((3, 4), (1, 6), (0, 9), (5, 2))]

    def reference(self, batches: list[Batch]) -> Any:
        arrays = [batch["value"].numpy() for batch in batches if len(batch["value"])]
        steps = max((array.shape[1] for array in arrays), default=0)
        columns = [
            np.concatenate([array[:, t] for array in arrays if array.shape[1] > t])
            for t in range(steps)
        ]
        top = np.array([column.max() for column in columns])
        code = int(np.trunc(8 * top.max())) if steps else np.iinfo(np.int64).min
        bottom = np.array([column.min() for column in columns])
        return {"top": top, "bottom": bottom, "code": np.int64(code)}

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        return [(Extremes(), Extremes(sign=-1), {"value": torch.zeros(2, 3)})]

    def bad_inputs(self) -> list[Batch]:
        return [{"value": torch.zeros(3)}, {"value": None}]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [lambda: Extremes(network_output=3)]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return torch.amax, [torch.ones(3)]


class TestFolds(MetricContract):
    def make(self) -> StreamingMetric:
        return Spread()

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        return [{"value": _batch_of(rng, b, t)} for b, t in ((3, 4), (1, 6), (0, 9), (5, 2))]

    def reference(self, batches: list[Batch]) -> Any:
        arrays = [batch["value"].numpy() for batch in batches if len(batch["value"])]
        steps = max((array.shape[1] for array in arrays), default=0)
        columns = [
            np.concatenate([array[:, t] for array in arrays if array.shape[1] > t])
            for t in range(steps)
        ]
        mean = np.array([column.mean() for column in columns])
        return {"mean": mean, "variance": np.array([column.var() for column in columns])}

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        return [(Spread(), Spread(correction=1), {"value": torch.zeros(2, 3)})]

    def bad_inputs(self) -> list[Batch]:
        return [{"value": torch.zeros(3)}, {"value": None}]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [lambda: Spread(network_output=3)]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return fold_moments, [torch.ones(3, 4), torch.ones(3, 4)]


def test_moments_survive_a_large_mean() -> None:
    """The variance of values around 1e8 by the difference of squares would be noise."""
    rng = np.random.default_rng(0)
    values = 1e8 + rng.normal(size=(1000, 2))
    mask = rng.random((1000, 2)) < 0.7
    metric = Spread(correction=1)
    for part, kept in zip(np.split(values, 10), np.split(mask, 10), strict=True):
        metric.update(torch.tensor(part), torch.tensor(kept))
    result = metric.compute()
    for t in range(2):
        chosen = values[mask[:, t], t]
        np.testing.assert_allclose(result["mean"][t], chosen.mean(), rtol=1e-15)
        np.testing.assert_allclose(result["variance"][t], chosen.var(ddof=1), rtol=1e-9)


def test_moments_of_too_little() -> None:
    metric = Spread(correction=1)
    metric.update(torch.tensor([[2.0, torch.nan]]), torch.tensor([[True, False]]))
    result = metric.compute()
    np.testing.assert_array_equal(result["mean"], [2.0, np.nan])
    np.testing.assert_array_equal(result["variance"], [np.nan, np.nan])


class TestRows(MetricContract):
    atol = 1e-4
    optout: ClassVar[dict[str, str]] = {"counts_beyond_float32": "2^26 copies of rows do not fit"}

    def make(self) -> StreamingMetric:
        return Rows()

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        return [
            {"features": _batch_of(rng, n, 5), "labels": torch.tensor(rng.integers(0, 9, n))}
            for n in (3, 1, 0, 6)
        ]

    def reference(self, batches: list[Batch]) -> Any:
        n = sum(len(batch["labels"]) for batch in batches)
        total = np.zeros(5 if n else 0)
        for batch in batches:
            for row, label in zip(batch["features"].numpy(), batch["labels"].numpy(), strict=True):
                total = total + (1.0 + label) * row
        return {"total": total, "n": np.int64(n)}

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"features": torch.zeros(2, 5), "labels": torch.zeros(2, dtype=torch.int64)}
        return [(Rows(power=1.0), Rows(power=2.0), first)]

    def bad_inputs(self) -> list[Batch]:
        three = torch.zeros(3, dtype=torch.int64)
        return [
            {"features": torch.zeros(3), "labels": three},
            {"features": torch.zeros(2, 5), "labels": three},
            {"features": torch.zeros(3, 4), "labels": three},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [lambda: Rows(capacity=0), lambda: Rows(capacity=True)]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return torch.matmul, [torch.ones(3), torch.ones(3, 2)]
