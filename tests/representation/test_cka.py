"""LinearCKA against the textbook formula over kernel matrices."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from dynmetrics.core import StreamingMetric
from dynmetrics.representation import LinearCKA, linear_cka
from dynmetrics.representation.paired_moments import batch_paired, fold_paired
from tests.contract import Batch, MetricContract
from tests.golden_cases import GOLDEN, ROUTES, feed
from tests.reference import representation as definition


class TestBiased(MetricContract):
    unbiased: ClassVar[bool] = False

    def make(self) -> StreamingMetric:
        return LinearCKA(unbiased=self.unbiased)

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        batches = []
        for n in (4, 5, 0, 7):
            x = 2 + rng.normal(size=(n, 3))
            y = x @ np.ones((3, 2)) + rng.normal(size=(n, 2)) - 5
            batches.append({"x": torch.tensor(x), "y": torch.tensor(y)})
        return batches

    def reference(self, batches: list[Batch]) -> Any:
        x, y = (np.concatenate([batch[name].numpy() for batch in batches]) for name in "xy")
        return np.float64(definition.linear_cka(x, y, self.unbiased))

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"x": torch.zeros(1, 3), "y": torch.zeros(1, 2)}
        return [(LinearCKA(), LinearCKA(unbiased=True), first)]

    def bad_inputs(self) -> list[Batch]:
        x, y = torch.zeros(2, 3), torch.zeros(2, 2)
        return [
            {"x": x, "y": torch.zeros(3, 2)},
            {"x": torch.zeros(2, 2), "y": torch.zeros(2, 3)},
            {"x": torch.zeros(2), "y": y},
            {"x": x, "y": torch.zeros(2, 2, dtype=torch.int64)},
            {"x": x, "y": None},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [lambda: LinearCKA(unbiased="yes")]  # type: ignore[arg-type]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        one, other = torch.rand(4, 5).double(), torch.rand(3, 5).double()
        return fold_paired, [batch_paired(one, 3), batch_paired(other, 3)]


class TestUnbiased(TestBiased):
    unbiased = True
    optout: ClassVar[dict[str, str]] = {
        "counts_beyond_float32": "copies of inputs are no independent inputs",
    }


@pytest.mark.parametrize("route", ROUTES)
def test_golden_values(route: str) -> None:
    case = json.loads((GOLDEN / "rsa" / "s12_linear_cka.json").read_text())
    x, y = (torch.tensor(case["inputs"][name], dtype=torch.float64) for name in "xy")
    batches = [(x[:1], y[:1]), (x[1:5], y[1:5]), (x[5:], y[5:])]
    for unbiased, name in ((False, "linear_cka_biased"), (True, "linear_cka_unbiased")):
        expected = pytest.approx(case["expected"][name], rel=case["rtol"], abs=case["atol"])
        metric = feed(partial(LinearCKA, unbiased=unbiased), batches, route)
        assert float(metric.compute()) == expected
        assert linear_cka(x, y, unbiased) == expected
        assert linear_cka(y, x, unbiased=unbiased) == expected


@pytest.mark.parametrize("unbiased", [False, True])
def test_rotation_scale_and_offset_change_nothing(unbiased: bool) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 4)), rng.normal(size=(50, 6))
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    one = linear_cka(torch.tensor(x), torch.tensor(y), unbiased)
    other = LinearCKA(unbiased=unbiased)
    for part in range(5):
        rows = slice(10 * part, 10 * part + 10)
        other.update(torch.tensor(1e4 + 7 * x[rows] @ turn), torch.tensor(y[rows] - 1e4))
    assert float(other.compute()) == pytest.approx(one, rel=1e-7)
    assert linear_cka(torch.tensor(x), torch.tensor(x @ turn), unbiased) == pytest.approx(1.0)


def test_few_inputs_and_wide_features() -> None:
    """Independent features look alike to the biased estimate, and not to the other."""
    rng = np.random.default_rng(0)
    x, y = torch.tensor(rng.normal(size=(10, 200))), torch.tensor(rng.normal(size=(10, 200)))
    assert linear_cka(x, y) > 0.8
    assert abs(linear_cka(x, y, unbiased=True)) < 0.2


def test_a_mean_over_batches_is_another_number() -> None:
    rng = np.random.default_rng(0)
    x, y = torch.tensor(rng.normal(size=(64, 8))), torch.tensor(rng.normal(size=(64, 8)))
    metric, batchwise = LinearCKA(), []
    for a, b in zip(x.split(8), y.split(8), strict=True):
        batchwise.append(float(metric(a, b)))
    assert float(metric.compute()) == pytest.approx(linear_cka(x, y), rel=1e-12)
    assert np.mean(batchwise) > 2 * linear_cka(x, y)


@pytest.mark.parametrize(("n", "unbiased"), [(0, False), (1, False), (3, True)])
@pytest.mark.filterwarnings("ignore:.*before any update")
def test_too_few_inputs(n: int, unbiased: bool) -> None:
    x = torch.randn(n, 3)
    assert np.isnan(linear_cka(x, x, unbiased))


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constant_features(unbiased: bool, dtype: torch.dtype) -> None:
    x = torch.randn(20, 3).to(dtype)
    assert np.isnan(linear_cka(x, torch.full((20, 2), 0.1, dtype=dtype), unbiased))


@pytest.mark.parametrize("unbiased", [False, True])
def test_features_that_are_not_finite(unbiased: bool) -> None:
    x, y = torch.randn(20, 3), torch.randn(20, 3)
    y[3, 1] = torch.inf
    assert np.isnan(linear_cka(x, y, unbiased))


@pytest.mark.parametrize("scale", [2.0**-70, 2.0**70])
def test_the_scale_of_features_decides_nothing(scale: float) -> None:
    """Squares of such float32 numbers leave their range."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(30, 4, generator=generator), torch.randn(30, 3, generator=generator)
    for unbiased in (False, True):
        plain, scaled = LinearCKA(unbiased=unbiased), LinearCKA(unbiased=unbiased)
        plain.update(x, y)
        scaled.update(scale * x, y)
        assert float(scaled.compute()) == pytest.approx(float(plain.compute()), rel=1e-9)
