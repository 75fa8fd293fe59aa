"""RankMe and EmbeddingHealth under all laws, against golden values and against the SVD."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from dynmetrics.core import StreamingMetric
from dynmetrics.core.scatter import batch_scatter, fold_scatter, gram
from dynmetrics.representation import EmbeddingHealth, RankMe, rankme
from dynmetrics.representation.spectrum import batch_factor
from tests.contract import Batch, MetricContract
from tests.golden_cases import ROUTES, Case, feed, world_cases
from tests.reference import representation as definition

few = pytest.mark.filterwarnings("ignore:.*the rank (is at most|still grows)")
CASES = world_cases("rankme")


class _Features(MetricContract):
    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        scales = np.array([3.0, 1.0, 0.2, 0.1, 0.02])
        return [
            {"features": torch.tensor(5 + rng.normal(size=(n, 5)) * scales)} for n in (7, 6, 0, 12)
        ]

    def features(self, batches: list[Batch]) -> Any:
        return np.concatenate([batch["features"].numpy() for batch in batches])

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        zeros = {"features": torch.zeros(1, 5)}
        return [(RankMe(), RankMe(eps=1e-5), zeros), (RankMe(center=True), RankMe(), zeros)]

    def bad_inputs(self) -> list[Batch]:
        return [
            {"features": torch.zeros(5)},
            {"features": torch.zeros(2, 4)},
            {"features": torch.zeros(2, 0)},
            {"features": torch.zeros(2, 5, dtype=torch.int64)},
            {"features": torch.zeros(2, 5, dtype=torch.complex64)},
            {"features": [[1.0]]},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: RankMe(eps=-1.0),
            lambda: RankMe(eps=float("nan")),
            lambda: RankMe(center=1),  # type: ignore[arg-type]
            lambda: RankMe(spectrum="svd"),
            lambda: RankMe(state="svd"),
            lambda: RankMe(normalized=None),  # type: ignore[arg-type]
            lambda: RankMe(products="tf32"),
            lambda: EmbeddingHealth(eps=True),
            lambda: EmbeddingHealth(products="half"),
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return batch_scatter, [torch.rand(7, 3)]


@few
class TestRankMe(_Features):
    # The sample counts, in the scattered pieces, change nothing: rank and weights are those of all.
    def make(self) -> StreamingMetric:
        return RankMe()

    def reference(self, batches: list[Batch]) -> Any:
        return np.float64(definition.rankme(self.features(batches)))


@few
class TestCentred(_Features):
    atol = 1e-8

    def make(self) -> StreamingMetric:
        return RankMe(center=True, spectrum="eigen", normalized=True)

    def reference(self, batches: list[Batch]) -> Any:
        features = self.features(batches)
        options: dict[str, Any] = {"center": True, "spectrum": "eigen", "normalized": True}
        return np.float64(definition.rankme(features, **options))

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        one, other = torch.rand(5, 3).double(), torch.rand(4, 3).double()
        return fold_scatter, [batch_scatter(one), batch_scatter(other)]


@few
class TestFactors(_Features):
    optout: ClassVar[dict[str, str]] = {
        "counts_beyond_float32": "a factor is no count, and doubling it costs digits",
    }

    def make(self) -> StreamingMetric:
        return RankMe(state="qr", center=True)

    def reference(self, batches: list[Batch]) -> Any:
        return np.float64(definition.rankme(self.features(batches), center=True))

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return batch_factor, [torch.rand(7, 3)]


@few
class TestHealth(_Features):
    atol = 1e-7
    depends_on_n: ClassVar[set[str]] = {"n"}

    def make(self) -> StreamingMetric:
        return EmbeddingHealth()

    def reference(self, batches: list[Batch]) -> Any:
        return definition.embedding_health(self.features(batches))


# ---------------------------------------------------------------------------- golden values


@few
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("state", ["gram", "qr"])
def test_golden_values_stream(case: Case, route: str, state: str) -> None:
    z = torch.tensor(case.inputs["z"])
    batches = [(part,) for part in z.tensor_split([1, len(z) // 2 + 1])]
    metric = feed(lambda: RankMe(state=state, **case.params), batches, route)
    case.check(metric.compute(), case.expected["recommended_default"])
    if "eigenvalues" in "".join(case.expected["references"]):
        eigen = case.expected["references"][
            "eigenvalues of the covariance instead (reptrix variant)"
        ]
        metric = feed(lambda: RankMe(state=state, center=True, spectrum="eigen"), batches, route)
        if not np.isnan(eigen):
            case.check(metric.compute(), eigen)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_golden_values_of_the_function(case: Case) -> None:
    z = torch.tensor(case.inputs["z"])
    value = rankme(z, **case.params)
    assert isinstance(value, float)
    case.check(value, case.expected["recommended_default"])
    case.check(rankme(z, case.params["center"], 1e-7), case.expected["recommended_default"])
    other = case.expected["references"]["eps 1e-5 (stable-pretraining constant)"]
    if not np.isnan(other):
        case.check(rankme(z, case.params["center"], eps=1e-5), other)


@few
@pytest.mark.parametrize("case", CASES, ids=str)
def test_golden_values_of_the_health_group(case: Case) -> None:
    metric = EmbeddingHealth()
    metric.update(torch.tensor(case.inputs["z"]))
    entry = "rankme_centered" if case.params["center"] else "rankme"
    case.check(metric.compute()[entry], case.expected["recommended_default"])


# ---------------------------------------------------------------------------- spectra


def features_with(spectrum: Tensor, n: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    d = len(spectrum)
    left = torch.randn(n, d, dtype=torch.float64, generator=generator)
    right = torch.randn(d, d, dtype=torch.float64, generator=generator)
    product = (torch.linalg.qr(left).Q * spectrum) @ torch.linalg.qr(right).Q.T
    return product.to(dtype)


def spectrum_of(kind: str, d: int) -> Tensor:
    if kind.startswith("rank"):
        return (torch.arange(d) < int(kind[4:])).double()
    return torch.logspace(0, -np.log10(float(kind)), d, dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("d", "kind"),
    [
        *[(64, kind) for kind in ("1e2", "1e4", "1e6", "1e8", "rank4", "rank16")],
        *[(256, kind) for kind in ("1e2", "1e4", "1e6", "1e8", "rank16", "rank64")],
    ],
)
def test_the_gram_matrix_is_as_good_as_the_svd(d: int, kind: str, dtype: torch.dtype) -> None:
    """Larger D are in the benchmark: they take minutes."""
    z = features_with(spectrum_of(kind, d), 4 * d, dtype)
    expected = rankme(z)
    # Low rank up to the rounding of float32 is a spectrum that a Gram matrix does not hold.
    reach = 2e-5 if kind.startswith("rank") and dtype is torch.float32 else 1e-6
    for options, tolerance in (({}, reach), ({"state": "qr"}, 1e-9)):
        metric = RankMe(**options)  # type: ignore[arg-type]
        for part in z.split(100):
            metric.update(part)
        assert float(metric.compute()) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rank", [1, 2, 10])
def test_exact_low_rank(rank: int, dtype: torch.dtype) -> None:
    """The rounding of the Gram matrix reads as no direction at all."""
    generator = torch.Generator().manual_seed(0)
    factors = [
        torch.randint(-9, 10, size, generator=generator) for size in ((800, rank), (rank, 200))
    ]
    z = (factors[0] @ factors[1]).to(dtype)
    metric = RankMe()
    for part in z.split(100):
        metric.update(part)
    assert float(metric.compute()) == pytest.approx(rankme(z), rel=1e-9)


@pytest.mark.parametrize("kind", ["1e4", "1e8", "rank1", "rank4"])
def test_factors_in_float32(kind: str) -> None:
    z = features_with(spectrum_of(kind, 64), 500, torch.float32)
    metric = RankMe(state="qr")
    metric.set_dtype(torch.float32)
    for part in z.split(100):
        metric.update(part)
    assert metric.factor.dtype is torch.float32
    assert float(metric.compute()) == pytest.approx(rankme(z), rel=1e-4)


@pytest.mark.parametrize("state", ["gram", "qr"])
def test_a_float32_gram_matrix_would_not_do(state: str) -> None:
    """Half of a wide spectrum is lost in the rounding of a float32 Gram matrix."""
    z = features_with(spectrum_of("1e6", 256), 1000, torch.float32)
    metric = RankMe(state=state)
    metric.update(z)
    assert float(metric.compute()) == pytest.approx(rankme(z), rel=1e-6)
    rough = RankMe(products="float32")
    rough.update(z)
    assert abs(float(rough.compute()) / rankme(z) - 1) > 1e-3


def test_products_in_float32_do_for_a_healthy_spectrum() -> None:
    z = torch.randn(2000, 64, generator=torch.Generator().manual_seed(0))
    metric = RankMe(products="float32")
    metric.update(z)
    assert float(metric.compute()) == pytest.approx(rankme(z), rel=1e-6)


@pytest.mark.parametrize("state", ["gram", "qr"])
def test_a_large_mean_does_not_spoil_the_centred_rank(state: str) -> None:
    rng = np.random.default_rng(0)
    z = 1e4 + rng.normal(size=(400, 8)) * np.logspace(0, -3, 8)
    metric = RankMe(center=True, state=state)
    for part in np.array_split(z, 7):
        metric.update(torch.tensor(part))
    assert float(metric.compute()) == pytest.approx(definition.rankme(z, center=True), rel=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("state", ["gram", "qr"])
def test_equal_rows_that_are_no_binary_numbers(state: str, dtype: torch.dtype) -> None:
    """Centring leaves a residue of rounding, which would read as a random rank."""
    z = torch.tensor([[0.1, 0.7, 1 / 3]]).repeat(30, 1).to(dtype)
    metric = RankMe(center=True, state=state)
    for part in z.split(7):
        metric.update(part)
    assert float(metric.compute()) == 1.0
    assert rankme(z, center=True) == 1.0


def test_two_points_use_all_that_two_points_can() -> None:
    """One direction of one attainable: not collapsed."""
    z = torch.zeros(2, 768)
    z[0, 0], z[1, 0] = 1.0, -1.0
    metric = RankMe(center=True, normalized=True)
    metric.update(z)
    with pytest.warns(UserWarning, match="the rank is at most 2"):
        assert float(metric.compute()) == pytest.approx(1.0, abs=1e-4)


def test_singular_values_and_not_eigenvalues() -> None:
    z = torch.diag(torch.tensor([2.0, 1.0]))
    assert rankme(z) == pytest.approx(1.89, abs=1e-2)
    assert rankme(z, spectrum="eigen") == pytest.approx(1.65, abs=1e-2)


def test_duplicated_rows_change_nothing() -> None:
    z = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    assert rankme(torch.cat([z, z])) == pytest.approx(rankme(z), rel=1e-9)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("make", [RankMe, lambda: RankMe(state="qr"), lambda: RankMe(center=True)])
def test_features_that_are_not_finite(make: Callable[[], RankMe], value: float) -> None:
    z = torch.ones(9, 2)
    z[3, 1] = value
    metric = make()
    metric.update(z)
    assert metric.compute().isnan()
    assert np.isnan(rankme(z))


def test_too_few_features_give_one_warning() -> None:
    metric = EmbeddingHealth()
    metric.update(torch.randn(20, 5))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        metric.compute()
        metric.update(torch.randn(1, 5))
        metric.compute()
    assert [str(w.message) for w in caught] == [
        "EmbeddingHealth: 20 features of width 5: the rank still grows with n"
    ]


def test_health_of_a_collapsed_embedding() -> None:
    metric = EmbeddingHealth()
    metric.update(torch.full((50, 3), 0.1))
    result = metric.compute()
    assert float(result["rankme"]) == pytest.approx(1.0, abs=1e-4)
    assert float(result["rankme_centered"]) == 1.0
    assert result["participation_ratio"].isnan()
    assert result["condition_number"].isnan()
    metric.reset()
    metric.update(torch.randn(50, 1) * torch.tensor([1.0, 2.0, 0.0]))
    assert metric.compute()["condition_number"].isinf()


@pytest.mark.parametrize("width", [384, 500, 700])
def test_gram_matrices_by_blocks(width: int) -> None:
    x = torch.randn(50, width, dtype=torch.float64)
    torch.testing.assert_close(gram(x), x.T @ x, rtol=1e-12, atol=1e-12)


def test_the_state_does_not_grow_with_the_features() -> None:
    metric = RankMe()
    for _ in range(20):
        metric.update(torch.randn(100, 16))
    assert metric.memory_bytes() == 8 * (16 * 16 + 1)


@pytest.mark.parametrize("options", [{}, {"center": True}, {"state": "qr"}, {"spectrum": "eigen"}])
@pytest.mark.parametrize("scale", [2.0**-70, 2.0**70])
def test_the_scale_of_features_decides_nothing(scale: float, options: dict[str, Any]) -> None:
    """Squares of such float32 numbers leave their range."""
    z = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    values = []
    for factor in (1.0, scale):
        metric = RankMe(**options)
        metric.update(factor * z)
        values.append(float(metric.compute()))
    assert values[1] == pytest.approx(values[0], rel=1e-9)
