"""LiDAR of groups that come whole and of views that come apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from dynmetrics.core import StreamingMetric
from dynmetrics.representation import LiDAR, lidar
from dynmetrics.representation.lidar import group_scatter
from tests.contract import Batch, MetricContract, quietly
from tests.golden_cases import ROUTES, Case, feed, world_cases
from tests.reference import representation as definition

CASES = world_cases("lidar")
few = pytest.mark.filterwarnings("ignore:.*groups of width")


def numbered(batches: list[Batch]) -> list[np.ndarray[Any, Any]]:
    """The views of every group, however they came."""
    views: dict[int, list[Any]] = defaultdict(list)
    for batch in batches:
        for row, group in zip(batch["features"].numpy(), batch["group"].numpy(), strict=True):
            if group >= 0:
                views[int(group)].append(row)
    return [np.stack(rows).astype(np.float64) for rows in views.values()]


@few
class TestWholeGroups(MetricContract):
    def make(self) -> StreamingMetric:
        return LiDAR(delta=1e-3)

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        return [
            {"features": torch.tensor(3 + rng.normal(size=(n, 1, 3)) + rng.normal(size=(n, q, 3)))}
            for n, q in ((5, 2), (2, 4), (0, 3), (6, 3))
        ]

    def reference(self, batches: list[Batch]) -> Any:
        groups = [group for batch in batches for group in batch["features"].numpy()]
        return np.float64(definition.lidar(groups, delta=1e-3))

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"features": torch.zeros(2, 2, 3)}
        return [(LiDAR(), LiDAR(delta=1.0), first), (LiDAR(), LiDAR(eps=0.1), first)]

    def bad_inputs(self) -> list[Batch]:
        return [
            {"features": torch.zeros(4, 1, 3)},
            {"features": torch.zeros(4, 3)},
            {"features": torch.zeros(4, 2, 5)},
            {"features": torch.zeros(4, 2, 3), "group": torch.zeros(4)},
            {"features": torch.zeros(4, 3), "group": torch.zeros(5)},
            {"features": torch.zeros(2, 3), "group": torch.tensor([0.5, 1.0])},
            {"features": torch.zeros(2, 3), "group": [0, 1]},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: LiDAR(delta=-1),
            lambda: LiDAR(eps=float("inf")),
            lambda: LiDAR(delta_mode="trace"),
            lambda: LiDAR(num_groups=0),
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return group_scatter, [torch.rand(4, 2, 3)]


@few
class TestViewsApart(TestWholeGroups):
    optout: ClassVar[dict[str, str]] = {
        "counts_beyond_float32": "the same groups, each of 2^26 times the views, have less freedom",
    }

    def make(self) -> StreamingMetric:
        return LiDAR(delta=1e-3, num_groups=9)

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        batches = []
        for n in (7, 2, 0, 12):
            group = rng.integers(-1, 7, n)
            features = 3 + np.cos(group[:, None] * [1.0, 2.0, 5.0]) + 0.3 * rng.normal(size=(n, 3))
            batches.append({"features": torch.tensor(features), "group": torch.tensor(group)})
        return batches

    def reference(self, batches: list[Batch]) -> Any:
        return np.float64(definition.lidar(numbered(batches), delta=1e-3))


@few
class TestViewsApartOfAnyNumberOfGroups(TestViewsApart):
    optout: ClassVar[dict[str, str]] = {
        **TestViewsApart.optout,
        "update_never_waits_for_the_device": "the number of groups is read from the data",
    }

    def make(self) -> StreamingMetric:
        return LiDAR(delta=1e-3)


@few
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("route", ROUTES)
def test_golden_values_stream(case: Case, route: str) -> None:
    z = torch.tensor(case.inputs["z"])
    views = z.shape[1]
    batches = [(part,) for part in z.tensor_split([1, len(z) // 2 + 1])]
    expected = case.expected["recommended_default"]
    if isinstance(expected, dict) and views < 2:
        with pytest.raises(ValueError, match="features: expected at least 2 views"):
            feed(lambda: LiDAR(**case.params), batches, route)
        return
    if isinstance(expected, dict):
        # More groups may yet come: the function, to which none will, raises.
        expected = float("nan")
    case.check(feed(lambda: LiDAR(**case.params), batches, route).compute(), expected)


@few
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("num_groups", [None, 20])
def test_golden_values_of_views_apart(case: Case, route: str, num_groups: int | None) -> None:
    z = torch.tensor(case.inputs["z"])
    n, views, width = z.shape
    rows, group = z.reshape(-1, width), torch.arange(n).repeat_interleave(views)
    batches = [(rows[i::3], group[i::3]) for i in range(3)]
    metric = feed(lambda: LiDAR(num_groups=num_groups, **case.params), batches, route)
    expected = case.expected["recommended_default"]
    case.check(metric.compute(), float("nan") if isinstance(expected, dict) else expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_golden_values_of_the_function(case: Case) -> None:
    z = torch.tensor(case.inputs["z"])
    expected = case.expected["recommended_default"]
    if isinstance(expected, dict):
        with pytest.raises(ValueError, match="z: expected at least 2 groups"):
            lidar(z, **case.params)
        return
    value = lidar(z, case.params["delta"])
    assert isinstance(value, float)
    case.check(value, expected)


def test_whole_and_apart_may_be_mixed() -> None:
    z = torch.randn(12, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    metric = LiDAR()
    metric.update(z[:5])
    metric.update(z[5:].reshape(-1, 4), group=torch.arange(7).repeat_interleave(3))
    assert float(metric.compute()) == pytest.approx(lidar(z), rel=1e-9)


def test_a_large_offset_and_few_digits() -> None:
    """Raw moments in float32 read another value at an offset of 10, and fail at 1000."""
    rng = np.random.default_rng(0)
    z = 1e4 + rng.normal(size=(50, 1, 4)) + 0.1 * rng.normal(size=(50, 3, 4))
    expected = definition.lidar(list(z))
    metric, apart = LiDAR(), LiDAR()
    metric.update(torch.tensor(z))
    rows = torch.tensor(z).reshape(-1, 4)
    apart.update(rows, group=torch.arange(50).repeat_interleave(3))
    assert float(metric.compute()) == pytest.approx(expected, rel=1e-7)
    assert float(apart.compute()) == pytest.approx(expected, rel=1e-7)


def test_a_relative_delta_ignores_scale() -> None:
    z = torch.randn(20, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    values = [lidar(z * scale, delta_mode="relative") for scale in (1e-3, 1.0, 1e3)]
    assert values[0] == pytest.approx(values[1], rel=1e-9)
    assert values[2] == pytest.approx(values[1], rel=1e-9)
    assert lidar(z * 1e-3) != pytest.approx(lidar(z), rel=1e-3)


def test_collapse_is_one_and_not_the_maximum() -> None:
    """All eigenvalues are 0: with eps added before normalising that would read as D."""
    assert lidar(torch.full((4, 3, 3), 0.1)) == 1.0
    assert lidar(torch.full((4, 3, 3), 1 / 3, dtype=torch.float64)) == 1.0


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_features_that_are_not_finite(value: float) -> None:
    z = torch.randn(5, 2, 3)
    z[1, 1, 1] = value
    assert np.isnan(lidar(z))


def test_groups_out_of_range_are_counted() -> None:
    metric = LiDAR(num_groups=4)
    rows = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    group = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, -1])
    metric.update(rows, group)
    with pytest.warns(UserWarning, match="1 views of a group above num_groups"):
        value = float(metric.compute())
    assert value == pytest.approx(lidar(rows[:8].reshape(4, 2, 2)), rel=1e-9)


def test_only_negative_groups() -> None:
    metric = LiDAR()
    metric.update(torch.randn(3, 2), torch.full((3,), -1))
    assert quietly(metric.compute).isnan()


def test_few_groups_give_a_warning() -> None:
    metric = LiDAR()
    metric.update(torch.randn(3, 2, 8))
    with pytest.warns(UserWarning, match="of 3 groups of width 8"):
        metric.compute()


def test_group_numbers_that_would_exhaust_memory() -> None:
    metric = LiDAR()
    x = torch.tensor([[0.0], [1.0], [4.0], [5.0], [9.0]])
    metric.update(x[:4].repeat(2, 1), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]))
    before = metric.compute()
    with pytest.raises(ValueError, match="group: expected numbers below 1048576, or num_groups"):
        metric.update(x[:2], torch.tensor([0, 10**11]))
    assert torch.equal(metric.compute(), before)
    known = LiDAR(num_groups=2)
    known.update(x, torch.tensor([0, 0, 1, 1, 10**11]))
    with pytest.warns(UserWarning, match="1 views of a group above num_groups"):
        known.compute()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [2.0**-60, 2.0**60])
def test_relative_delta_is_free_of_scale(scale: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(12, 3, 4, generator=generator, dtype=dtype)
    plain = lidar(z, delta_mode="relative")
    assert lidar(scale * z, delta_mode="relative") == pytest.approx(plain, rel=1e-9)
