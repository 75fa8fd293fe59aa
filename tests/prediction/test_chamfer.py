"""ChamferDistance under all laws, against the golden values, and where others go wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from dynmetrics.core import StreamingMetric
from dynmetrics.prediction import ChamferDistance, chamfer, chamfer_distance
from dynmetrics.prediction.chamfer import _by_comparison, _by_tree, set_distances
from dynmetrics.prediction.point_sets import PointSets, is_real
from tests.contract import Batch, MetricContract
from tests.golden_cases import ROUTES, Case, feed, world_cases
from tests.reference import prediction as definition

CASES = world_cases("chamfer_distance")
every_case = pytest.mark.parametrize("case", CASES, ids=str)
Sets = list[Tensor]


class TestPaddedSets(MetricContract):
    depends_on_n: ClassVar[set[str]] = {"se"}

    def make(self) -> StreamingMetric:
        return ChamferDistance()

    def batches(self, seed: int = 0) -> list[Batch]:
        """Sets of any size, some empty, padded with what would change every result."""
        rng = np.random.default_rng(seed)
        batches = []
        for b, n, m in ((3, 4, 6), (1, 1, 1), (0, 2, 3), (5, 3, 2)):
            lengths = [torch.tensor(rng.integers(0, size + 1, b)) for size in (n, m)]
            sets = [torch.tensor(rng.random((b, size, 3))) for size in (n, m)]
            for points, length in zip(sets, lengths, strict=True):
                points[torch.arange(points.shape[1]) >= length[:, None]] = torch.nan
            batches.append(
                {"x": sets[0], "y": sets[1], "x_lengths": lengths[0], "y_lengths": lengths[1]}
            )
        return batches

    def reference(self, batches: list[Batch]) -> Any:
        items = [
            (x.detach()[:n].numpy(), y.detach()[:m].numpy())
            for batch in batches
            for x, y, n, m in zip(*batch.values(), strict=True)
        ]
        return definition.chamfer_of_items(items)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"x": torch.zeros(1, 1, 3), "y": torch.zeros(1, 1, 3)}
        return [
            (ChamferDistance(), ChamferDistance(squared=False), first),
            (ChamferDistance(sides="max"), ChamferDistance(sides="mean"), first),
        ]

    def bad_inputs(self) -> list[Batch]:
        x = torch.rand(2, 4, 3)
        return [
            {"x": x, "y": x[:1]},
            {"x": x, "y": x[..., :2]},
            {"x": x, "y": x[0]},
            {"x": x.numpy(), "y": x},
            {"x": x[..., :0], "y": x[..., :0]},
            {"x": x, "y": x, "x_lengths": torch.tensor([1])},
            {"x": x, "y": x, "y_lengths": torch.tensor([0.5, 1.0])},
            {"x": list(x), "y": x, "x_lengths": torch.tensor([1, 1])},
            {"x": [x[0], x[0, :, :2]], "y": x},
            {"x": [x[0], x[0, 0]], "y": x},
            {"x": [x[0], None], "y": x},
            {"x": [], "y": []},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: ChamferDistance(squared=1),  # type: ignore[arg-type]
            lambda: ChamferDistance(point_reduction="median"),
            lambda: ChamferDistance(sides="both"),
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        x, y = torch.rand(2, 2, 5, 3)
        sets = [PointSets(points, torch.tensor([3, 5])) for points in (x, y)]
        return set_distances, [*sets, True, "mean", "sum"]


class TestTrees(TestPaddedSets):
    """The same, with nothing left to the comparison of all pairs."""

    optout: ClassVar[dict[str, str]] = {
        "kernel_compiles_in_one_graph": "no tree is built in a graph",
        "update_never_waits_for_the_device": "trees are for points that the CPU has anyway",
    }

    @pytest.fixture(autouse=True)
    def _only_trees(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(chamfer, "CHUNK", 0)


class TestRaggedHausdorff(MetricContract):
    depends_on_n: ClassVar[set[str]] = {"se"}
    options: ClassVar[dict[str, Any]] = {
        "squared": False,
        "point_reduction": "max",
        "sides": "max",
    }

    def make(self) -> StreamingMetric:
        return ChamferDistance(**self.options)

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        return [
            {
                name: [torch.tensor(rng.random((rng.integers(0, 5), 2))) for _ in range(b)]
                for name in ("x", "y")
            }
            for b in (3, 1, 6)
        ]

    def reference(self, batches: list[Batch]) -> Any:
        items = [
            (x.numpy(), y.numpy())
            for batch in batches
            for x, y in zip(batch["x"], batch["y"], strict=True)
        ]
        return definition.chamfer_of_items(items, **self.options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"x": [torch.zeros(1, 2)], "y": [torch.zeros(1, 2)]}
        return [(ChamferDistance(), ChamferDistance(point_reduction="sum"), first)]

    def bad_inputs(self) -> list[Batch]:
        return [{"x": [torch.rand(1, 2)], "y": [torch.rand(1, 2)] * 2}]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [lambda: ChamferDistance(sides="sum ")]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        sets = [PointSets(points, torch.tensor([0, 4])) for points in torch.rand(2, 2, 5, 3)]
        return set_distances, [*sets, False, "max", "y_to_x"]

    def samples(self, batch: Batch) -> int:
        return len(batch["x"])

    def piece(self, batch: Batch, start: int, stop: int) -> Batch:
        if start == stop:
            return {"x": torch.zeros(0, 1, 2), "y": torch.zeros(0, 1, 2)}
        return {name: sets[start:stop] for name, sets in batch.items()}

    # The battery converts and moves tensors only.
    optout: ClassVar[dict[str, str]] = {
        "half_precision_inputs": "tested with padded sets",
        "other_device_is_refused": "tested with padded sets",
        "on_cuda": "tested with padded sets",
    }


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("point_reduction", chamfer.POINT_REDUCTIONS)
@pytest.mark.parametrize("sides", chamfer.SIDES)
def test_every_option_against_the_definition(
    squared: bool, point_reduction: str, sides: str
) -> None:
    x, y = torch.rand(3, 6, 4, dtype=torch.float64), torch.rand(3, 9, 4, dtype=torch.float64)
    options: dict[str, Any] = {
        "squared": squared,
        "point_reduction": point_reduction,
        "sides": sides,
    }
    expected = [definition.chamfer_distance(a, b, **options) for a, b in zip(x, y, strict=True)]
    ours = chamfer_distance(x, y, **options)
    np.testing.assert_allclose(ours.numpy(), expected, rtol=0, atol=1e-12)


# ---------------------------------------------------------------------------- golden values


def sets_of(case: Case) -> tuple[Sets, Sets]:
    axes = max(len(points[0]) for side in case.inputs.values() for points in side if points)
    x, y = ([torch.tensor(p).reshape(-1, axes) for p in case.inputs[side]] for side in "xy")
    return x, y


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_item(case: Case, dtype: torch.dtype) -> None:
    x, y = ([points.to(dtype) for points in side] for side in sets_of(case))
    values = chamfer_distance(x, y)
    assert values.dtype is dtype
    case.check(values, case.expected["recommended_default"])
    for options, name in (
        ({"squared": False}, "unsquared, mean per side, sum of sides (DINO-WM)"),
        ({"point_reduction": "sum"}, "squared, point sum"),
    ):
        expected = case.expected["references"][name]
        case.check(chamfer_distance(x, y, **options), expected)


@every_case
@pytest.mark.parametrize("route", ROUTES)
def test_streams(case: Case, route: str) -> None:
    x, y = sets_of(case)
    sizes = [torch.tensor([len(points) for points in side]) for side in (x, y)]
    padded = [torch.nn.utils.rnn.pad_sequence(side, batch_first=True) for side in (x, y)]
    result = feed(ChamferDistance, [(*padded, *sizes)], route).compute()
    expected = np.array(case.expected["recommended_default"])
    defined = expected[~np.isnan(expected)]
    case.check(result["chamfer"], defined.mean() if len(defined) else np.nan)
    assert int(result["n"]) == len(defined)
    assert int(result["n_empty"]) == len(expected) - len(defined)


# ---------------------------------------------------------------------------- known traps


def test_points_three_apart() -> None:
    x, y = torch.tensor([[[0.0]]]), torch.tensor([[[3.0]]])
    assert chamfer_distance(x, y) == 18
    assert chamfer_distance(x, y, sides="mean") == 9
    assert chamfer_distance(x, y, sides="x_to_y") == 9
    assert chamfer_distance(x, y, squared=False) == 6


def test_large_coordinates_that_are_close() -> None:
    """109 apart, which the matrix form of a distance in float32 takes for 0."""
    x = torch.full((1, 30, 1), 512695.0)
    y = torch.full((1, 30, 1), 512804.0)
    assert chamfer_distance(x, y, squared=False, sides="x_to_y") == 109
    points = torch.rand(1, 40, 3) * 1e5
    assert chamfer_distance(points, points) == 0


@pytest.mark.parametrize("n", [30, 800])
@pytest.mark.parametrize("axes", [2, 3, 20])
@pytest.mark.parametrize(
    ("offset", "dtype"), [(1e3, torch.float32), (1e3, torch.float64), (1e7, torch.float64)]
)
def test_far_from_the_origin(n: int, axes: int, offset: float, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    x, y = (torch.tensor(rng.random((2, n, axes)) + offset).to(dtype) for _ in range(2))
    expected = []
    for a, b in zip(x.double().numpy(), y.double().numpy(), strict=True):
        there, back = cKDTree(b).query(a)[0], cKDTree(a).query(b)[0]
        expected.append((there**2).mean() + (back**2).mean())
    np.testing.assert_allclose(chamfer_distance(x, y).double().numpy(), expected, rtol=1e-6)


def test_small_displacements_far_from_the_origin() -> None:
    generator = torch.Generator().manual_seed(0)
    x = 100 + 0.1 * torch.rand(1, 200, 3, generator=generator, dtype=torch.float64)
    y = x + 1e-3
    there, back = cKDTree(y[0]).query(x[0])[0], cKDTree(x[0]).query(y[0])[0]
    expected = (there**2).mean() + (back**2).mean()
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-3)):
        value = float(chamfer_distance(x.to(dtype), y.to(dtype)))
        assert value == pytest.approx(expected, rel=tolerance)


def test_an_empty_side_is_undefined_and_counted() -> None:
    full, none = torch.rand(4, 3), torch.zeros(0, 3)
    values = chamfer_distance([full, none, full, none], [full, full, none, none])
    assert values[0] == 0
    assert values[1:].isnan().all()
    metric = ChamferDistance()
    metric.update([full, none, full + 1], [full, full, full])
    result = metric.compute()
    assert (int(result["n"]), int(result["n_empty"])) == (2, 1)
    assert result["chamfer"] > 0
    assert chamfer_distance(torch.zeros(2, 0, 3), torch.zeros(2, 5, 3)).isnan().all()


@pytest.mark.parametrize("n", [5, 900])
def test_a_diverged_point_shows(n: int) -> None:
    x, y = torch.rand(2, 3, n, 3)
    for points, item in ((x, 0), (y, 2)):
        points[item, n // 2, 1] = torch.nan
    assert chamfer_distance(x, y).isnan().tolist() == [True, False, True]
    assert chamfer_distance(x, y, point_reduction="max").isnan().tolist() == [True, False, True]
    for sides in ("x_to_y", "y_to_x"):
        assert chamfer_distance(x, y, sides=sides).isnan().tolist() == [True, False, True]
    metric = ChamferDistance()
    metric.update(x, y)
    assert metric.compute()["chamfer"].isnan()


def test_lengths_beyond_the_points_are_left_out_with_a_warning() -> None:
    x, y = torch.rand(2, 3, 4, 2)
    metric = ChamferDistance()
    metric.update(x, y, x_lengths=torch.tensor([4, 5, 0]))
    with pytest.warns(UserWarning, match="1 items left out: lengths exceed"):
        result = metric.compute()
    assert (int(result["n"]), int(result["n_empty"])) == (1, 1)
    expected = chamfer_distance(x[:1], y[:1])
    assert float(result["chamfer"]) == pytest.approx(float(expected), abs=1e-6)
    assert chamfer_distance(x, y, x_lengths=torch.tensor([4, 5, 0])).isnan().tolist() == [
        False,
        True,
        True,
    ]


def test_both_searches_find_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    x = PointSets(torch.rand(3, 700, 3, generator=generator), torch.tensor([700, 1, 650]))
    y = PointSets(torch.rand(3, 800, 3, generator=generator), torch.tensor([799, 800, 1]))
    by_tree = _by_tree(x, y)
    assert by_tree is not None
    assert torch.equal(by_tree[is_real(x)], _by_comparison(x, y)[is_real(x)])


def test_many_equal_points_are_no_trouble() -> None:
    x = torch.zeros(1, 2000, 3)
    y = torch.ones(1, 2000, 3)
    assert chamfer_distance(x, y) == 6


@pytest.mark.parametrize("n", [5, 600])
def test_is_differentiable(n: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(1, n, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    y = torch.rand(1, n + 1, 2, generator=generator, dtype=torch.float64)
    (ours,) = torch.autograd.grad(chamfer_distance(x, y).sum(), x)
    pairs = (x[0, :, None] - y[0, None]).square().sum(2)
    (expected,) = torch.autograd.grad(pairs.amin(1).mean() + pairs.amin(0).mean(), x)
    torch.testing.assert_close(ours, expected)
    same = y.clone().requires_grad_()
    (flat,) = torch.autograd.grad(chamfer_distance(same, y, squared=False).sum(), same)
    assert flat.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_point_far_away_carries_nothing_off(dtype: torch.dtype) -> None:
    """About the mean, the neighbours of all other points would be found by rounding errors."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(1, 9, 2, generator=generator, dtype=dtype) for _ in range(2))
    far = y.clone()
    far[0, 0] = 1e12
    index = _by_comparison(*(PointSets(p, torch.tensor([9])) for p in (x, far)))
    distances = (x[0].double().unsqueeze(1) - far[0].double()).square().sum(2)
    assert index[0].tolist() == distances.argmin(1).tolist()
