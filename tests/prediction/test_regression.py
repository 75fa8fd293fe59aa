"""R2Score under all laws, against the golden values, and where others go wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score as sklearn_r2_score

from dynmetrics.core import StreamingMetric
from dynmetrics.prediction import R2Score, r2_score
from dynmetrics.prediction.regression import MULTIOUTPUT, determination
from tests.contract import Batch, MetricContract
from tests.golden_cases import ROUTES, Case, feed, world_cases
from tests.reference import prediction as definition

CASES = world_cases("r2_score")
every_case = pytest.mark.parametrize("case", CASES, ids=str)


class TestOutputs(MetricContract):
    options: ClassVar[dict[str, Any]] = {"multioutput": "raw_values", "adjusted": 1}
    depends_on_n: ClassVar[set[str]] = set()

    def make(self) -> StreamingMetric:
        return R2Score(**self.options)

    def batches(self, seed: int = 0) -> list[Batch]:
        """Three outputs: a large mean, a constant, and a small scale."""
        rng = np.random.default_rng(seed)
        batches = []
        for n in (5, 1, 0, 8):
            target = rng.normal(size=(n, 3)) * [1.0, 0.0, 1e-3] + [100.0, 0.1, 0.0]
            preds = target + rng.normal(size=(n, 3)) * [0.5, 0.1, 5e-4]
            batches.append({"preds": torch.tensor(preds), "target": torch.tensor(target)})
        return batches

    def reference(self, batches: list[Batch]) -> Any:
        preds, target = (
            torch.cat([batch[name] for batch in batches]).detach() for name in ("preds", "target")
        )
        return definition.r2_score(preds, target, **self.options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"preds": torch.zeros(2, 3), "target": torch.zeros(2, 3)}
        return [
            (R2Score(), R2Score(force_finite=False), first),
            (R2Score(), R2Score(multioutput="variance_weighted"), first),
        ]

    def bad_inputs(self) -> list[Batch]:
        target = torch.rand(4, 3)
        return [
            {"preds": target[:, :2], "target": target},
            {"preds": target[:3], "target": target},
            {"preds": target[:, :2], "target": target[:, :2]},
            {"preds": target[0, 0], "target": target[0, 0]},
            {"preds": target[:, :0], "target": target[:, :0]},
            {"preds": [1.0], "target": target},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: R2Score(multioutput="none"),
            lambda: R2Score(force_finite=None),  # type: ignore[arg-type]
            lambda: R2Score(adjusted=-1),
            lambda: R2Score(adjusted=True),
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return determination, [torch.tensor([0.0, 1.0]), torch.tensor([2.0, 0.0]), True]

    def test_counts_beyond_float32(self) -> None:
        """The adjustment depends on n, which this law multiplies."""
        metric = R2Score()
        for batch in self.batches():
            metric.update(**batch)
        before = metric.compute()
        n = metric.n.clone()
        for _ in range(26):
            metric.merge_state(metric.clone())
        assert torch.equal(metric.n, n * 2**26)
        torch.testing.assert_close(metric.compute(), before, rtol=0, atol=1e-9)


@pytest.mark.parametrize("multioutput", MULTIOUTPUT)
@pytest.mark.parametrize("force_finite", [True, False])
@pytest.mark.parametrize("constant", [0, 1, 2])
@pytest.mark.parametrize("exact", [True, False])
def test_equals_scikit_learn(
    multioutput: str, force_finite: bool, constant: int, exact: bool
) -> None:
    rng = np.random.default_rng(0)
    target = rng.normal(size=(9, 2))
    target[:, :constant] = 2.0
    pred = target + rng.normal(size=(9, 2)) * 0.3
    if exact:
        pred[:, :constant] = 2.0
    options: dict[str, Any] = {"multioutput": multioutput, "force_finite": force_finite}
    with np.errstate(all="ignore"):
        expected = sklearn_r2_score(target, pred, **options)
    ours = r2_score(torch.tensor(pred), torch.tensor(target), **options)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12)
    by_definition = definition.r2_score(pred, target, **options)
    np.testing.assert_allclose(by_definition, expected, rtol=0, atol=1e-12)


# ---------------------------------------------------------------------------- golden values


@every_case
def test_in_one_call(case: Case) -> None:
    pred, target = (torch.tensor(case.inputs[name]).double() for name in ("pred", "target"))
    value = r2_score(pred, target)
    assert isinstance(value, float)
    case.check(value, case.expected["recommended_default"])
    weighted = r2_score(pred, target, multioutput="variance_weighted")
    case.check(weighted, case.expected["references"]["sklearn variance_weighted"])
    strict = r2_score(pred, target, force_finite=False)
    case.check(strict, case.expected["references"]["sklearn force_finite=False"])


@every_case
@pytest.mark.parametrize("route", ROUTES)
def test_streams(case: Case, route: str) -> None:
    """Also in float32, where the inputs are rounded but nothing else is."""
    pred, target = (torch.tensor(case.inputs[name]) for name in ("pred", "target"))
    cut = len(pred) // 3
    batches = [(pred[:cut], target[:cut]), (pred[cut:], target[cut:])]
    case.check(feed(R2Score, batches, route).compute(), case.expected["recommended_default"])


# ---------------------------------------------------------------------------- known traps


@pytest.mark.parametrize("mean", [0.0, 1e4, 1e6])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_neither_mean_nor_scale_matters(mean: float, scale: float) -> None:
    """Raw sums in float32 give 0.9998 for 0.990 at mean 1e4, and 1 or more beyond."""
    rng = np.random.default_rng(0)
    target = (rng.normal(size=2000) + mean) * scale
    pred = target + 0.1 * rng.normal(size=2000) * scale
    metric = R2Score()
    for one, other in zip(np.split(pred, 20), np.split(target, 20), strict=True):
        metric.update(torch.tensor(one), torch.tensor(other))
    value = float(metric.compute())
    assert value == pytest.approx(sklearn_r2_score(target, pred), abs=1e-8)
    assert value == pytest.approx(0.99, abs=2e-3)


def test_nearly_constant_targets_are_neither_forced_nor_absurd() -> None:
    target = 5.0 + 1e-7 * torch.arange(10, dtype=torch.float64)
    pred = target + torch.tensor([1e-8, -1e-8] * 5, dtype=torch.float64)
    value = r2_score(pred, target)
    assert value == pytest.approx(float(sklearn_r2_score(target, pred)), abs=1e-7)
    assert 0 < value < 1


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e6 + 0.1])
def test_constants_that_are_no_binary_numbers(value: float) -> None:
    """Their computed variance is not 0 but a rounding error, and no score to divide by."""
    target = torch.full((1000,), value, dtype=torch.float64)
    for pred, expected in ((target + 0.1, 0.0), (target, 1.0)):
        metric = R2Score()
        for one, other in zip(pred.split([1, 10, 989]), target.split([1, 10, 989]), strict=True):  # type: ignore[no-untyped-call]
            metric.update(one, other)
        assert metric.compute() == expected


def test_a_column_is_as_good_as_a_vector() -> None:
    """And never stretched to a matrix of all differences."""
    pred, target = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1.0, 2.0, 3.0])
    assert r2_score(pred, target) == 0.5
    raw = r2_score(pred, target, multioutput="raw_values")
    assert torch.equal(torch.as_tensor(raw), torch.tensor([0.5], dtype=torch.float64))


def test_too_few_samples_are_undefined() -> None:
    for n in (0, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert np.isnan(r2_score(torch.ones(n), torch.ones(n)))
    assert np.isnan(r2_score(torch.rand(3), torch.rand(3), adjusted=2))


def test_merging_leaves_the_source_alone_and_loses_no_digit() -> None:
    rng = np.random.default_rng(0)
    target = torch.tensor(rng.normal(size=(6, 400)) + 1e6)
    pred = target + torch.tensor(0.1 * rng.normal(size=(6, 400)))
    parts = [R2Score() for _ in range(6)]
    for part, one, other in zip(parts, pred, target, strict=True):
        part.update(one, other)
    before = [part.moments.clone() for part in parts]
    total = R2Score()
    for part in parts:
        total.merge_state(part)
    assert all(torch.equal(p.moments, m) for p, m in zip(parts, before, strict=True))
    expected = sklearn_r2_score(target.flatten(), pred.flatten())
    assert float(total.compute()) == pytest.approx(expected, abs=1e-9)
