"""PolicyComparison under all laws, the golden cases, and the intervals beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from dynmetrics.control import (
    PolicyComparison,
    newcombe_interval,
    required_episodes,
    wilson_interval,
)
from dynmetrics.control.comparison import mcnemar
from dynmetrics.core import StreamingMetric
from dynmetrics.core.numerics import ratio
from tests.contract import Batch, MetricContract, assert_same, fed
from tests.golden_cases import ROUTES, Case, feed, world_cases
from tests.reference import control as definition

CASES = world_cases("policy_comparison")
PAIRED = [case for case in CASES if "only_a" in case.inputs]
UNPAIRED = [case for case in CASES if "successes_a" in case.inputs]
every_route = pytest.mark.parametrize("route", ROUTES)


class TestPolicies(MetricContract):
    depends_on_n: ClassVar[set[str]] = {"low", "high", "p_value", "p_exact"}

    def make(self) -> StreamingMetric:
        return PolicyComparison(confidence=0.9)

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        return [
            {
                "success_a": torch.tensor(rng.random(n) < 0.8),
                "success_b": torch.tensor(rng.random(n) < 0.5),
            }
            for n in (6, 1, 0, 9)
        ]

    def reference(self, batches: list[Batch]) -> Any:
        pairs = [
            pair
            for batch in batches
            for pair in zip(batch["success_a"].tolist(), batch["success_b"].tolist(), strict=True)
        ]
        return definition.compare(pairs, 0.9)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"success_a": torch.tensor([True]), "success_b": torch.tensor([True])}
        return [(PolicyComparison(), PolicyComparison(confidence=0.9), first)]

    def bad_inputs(self) -> list[Batch]:
        success = torch.tensor([True, False])
        return [
            {"success_a": success, "success_b": success[:1]},
            {"success_a": success[:, None], "success_b": success},
            {"success_a": success, "success_b": torch.tensor([0.5, 1])},
            {"success_a": torch.tensor([torch.nan, 1]), "success_b": success},
            {"success_a": success, "success_b": [True, False]},
            {"success_a": success[0], "success_b": success[0]},
            {"success_a": success[:, None], "success_b": success[:, None]},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [lambda: PolicyComparison(confidence=0), lambda: PolicyComparison(confidence=95)]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return ratio, [torch.tensor([1, 0]), torch.tensor([3, 0])]


def outcomes(only_a: int, only_b: int, both: int, neither: int) -> tuple[Tensor, Tensor]:
    """Paired episodes with these counts, in an order that mixes them."""
    pairs = [(1, 0)] * only_a + [(0, 1)] * only_b + [(1, 1)] * both + [(0, 0)] * neither
    order = np.random.default_rng(0).permutation(len(pairs))
    table = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)[order].bool()
    return table[:, 0], table[:, 1]


def compared(*counts: int, **options: Any) -> PolicyComparison:
    metric = PolicyComparison(**options)
    metric.update(*outcomes(*counts))
    return metric


# ---------------------------------------------------------------------------- golden values


@pytest.mark.parametrize("case", PAIRED, ids=str)
@every_route
def test_golden_pairs(case: Case, route: str) -> None:
    counts = [case.inputs[name] for name in ("only_a", "only_b", "both_succeed", "both_fail")]
    a, b = outcomes(*counts)
    batches = [(a[:3], b[:3]), (a[3:], b[3:])]
    result = feed(PolicyComparison, batches, route).compute()
    expected, references = case.expected["recommended_default"], case.expected["references"]
    case.check(result["p_value"], expected["p_mid"])
    case.check(result["p_exact"], expected["p_exact"])
    case.check(result["difference"], references["difference a - b"])
    names = ("only_a", "only_b", "both", "neither", "n")
    assert [int(result[name]) for name in names] == [*counts, sum(counts)]
    assert definition.mcnemar(*counts[:2]) == pytest.approx(
        (expected["p_exact"], expected["p_mid"])
    )


@pytest.mark.parametrize("case", UNPAIRED, ids=str)
def test_golden_independent_groups(case: Case) -> None:
    names = ("successes_a", "episodes_a", "successes_b", "episodes_b")
    counts = [case.inputs[name] for name in names]
    expected = case.expected["recommended_default"]
    bounds = [expected["newcombe_low"], expected["newcombe_high"]]
    low, high = newcombe_interval(*counts, **case.params)
    assert isinstance(low, float)
    case.check([low, high], bounds)
    case.check(definition.newcombe_interval(*counts, **case.params), bounds)
    k1, n1, k2, n2 = counts
    case.check(k1 / n1 - k2 / n2, expected["difference"])


# ---------------------------------------------------------------------------- intervals


def test_paired_interval_as_published() -> None:
    """Complete response before and after therapy: both 59, 6 before only, 16 after only, of 161.

    The R package contingencytables, of Fagerland, Lydersen and Laake's book (2017), prints
    -0.1186 to -0.0046.
    """
    result = compared(6, 16, 59, 80).compute()
    bounds = float(result["low"]), float(result["high"])
    assert bounds == pytest.approx((-0.1186, -0.0046), abs=5e-5)


def test_every_small_table() -> None:
    """Zeros anywhere: bounds are in [-1, 1], hold the difference, and swap with the policies."""
    for counts in product((0, 1, 6), repeat=4):
        a, b = outcomes(*counts)
        metric, swapped = PolicyComparison(), PolicyComparison()
        metric.update(a, b)
        swapped.update(b, a)
        result, mirror = metric.compute(), swapped.compute()
        pairs = list(zip(a.tolist(), b.tolist(), strict=True))
        if not pairs:
            continue
        assert_same(result, definition.compare(pairs), 1e-12)
        low, high, difference = (float(result[name]) for name in ("low", "high", "difference"))
        assert -1 <= low <= difference + 1e-12
        assert difference - 1e-12 <= high <= 1
        assert (float(mirror["low"]), float(mirror["high"])) == pytest.approx((-high, -low))
        assert float(mirror["p_value"]) == pytest.approx(float(result["p_value"]))
        assert float(result["p_value"]) <= float(result["p_exact"])


def test_pairing_tells_more_than_two_groups() -> None:
    """Policies that agree on most seeds: 40 of 50 against 30 of 50."""
    result = compared(12, 2, 28, 8).compute()
    low, high = newcombe_interval(40, 50, 30, 50)
    assert float(result["high"]) - float(result["low"]) < high - low


def test_p_values_of_very_many_episodes() -> None:
    for counts in ((10_000, 10_300), (3_000_000, 2_999_000), (0, 2000)):
        exact, middle = (float(p) for p in mcnemar(*torch.tensor(counts)))
        least, n = min(counts), sum(counts)
        tail, mass = stats.binom.cdf(least, n, 0.5), stats.binom.pmf(least, n, 0.5)
        assert exact == pytest.approx(2 * tail, rel=1e-6)
        assert middle == pytest.approx(2 * tail - mass, rel=1e-6)


def test_newcombe_interval_where_score_intervals_fail() -> None:
    assert newcombe_interval(10, 10, 10, 10) == pytest.approx((-0.278, 0.278), abs=5e-4)
    assert newcombe_interval(0, 20, 20, 20)[0] == -1.0
    for counts in ((9, 10, 3, 10), (0, 1, 1, 1), (0, 0, 3, 4), (5, 5, 0, 0), (0, 0, 0, 0)):
        for confidence in (0.8, 0.999):
            ours = newcombe_interval(*counts, confidence)
            assert ours == pytest.approx(definition.newcombe_interval(*counts, confidence))
    assert newcombe_interval(0, 0, 0, 0) == (-1.0, 1.0)
    for wrong in ((3, 2, 1, 1), (1, 1, -1, 2)):
        with pytest.raises(ValueError, match="k: expected"):
            newcombe_interval(*wrong)


def test_wilson_bounds_are_exact_at_the_edges() -> None:
    assert wilson_interval(38, 38)[1] == 1.0
    assert wilson_interval(0, 77)[0] == 0.0


# ---------------------------------------------------------------------------- verdict


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ((40, 5, 100, 55), "a is better"),
        ((5, 40, 100, 55), "b is better"),
        ((20, 20, 2000, 2000), "no difference found"),
        ((3, 2, 10, 5), "underpowered"),
        ((0, 0, 2, 2), "underpowered"),
        ((4, 0, 0, 0), "underpowered"),
        # The exact p-value is 0.0625, mid-p 0.03125.
        ((5, 0, 0, 0), "a is better"),
    ],
)
def test_verdict(counts: tuple[int, ...], verdict: str) -> None:
    metric = compared(*counts)
    assert metric.verdict() == verdict
    assert metric.verdict(metric.compute()) == verdict


def test_verdict_follows_the_confidence() -> None:
    assert compared(8, 2, 30, 10).verdict() == "underpowered"
    assert compared(8, 2, 30, 10, confidence=0.9).verdict() == "a is better"


@pytest.mark.filterwarnings("ignore:.*before any update")
def test_nothing_seen() -> None:
    metric = PolicyComparison()
    result = metric.compute()
    assert_same(result, definition.compare([]), 0)
    assert metric.verdict() == "underpowered"


# ---------------------------------------------------------------------------- planning


@pytest.mark.parametrize(
    ("p1", "p2", "published"),
    [(0.5, 0.6, 387), (0.7, 0.8, 292), (0.9, 0.95, 424), (0.5, 0.7, 93)],
)
def test_required_episodes(p1: float, p2: float, published: int) -> None:
    """The fewest that reach the power; statsmodels gives the fractions 387.17, 291.69, ..."""
    n = required_episodes(p1, p2)
    assert n == required_episodes(p2, p1)
    assert n in (published, published + 1)
    assert definition.power_of(n, p1, p2) >= 0.8 > definition.power_of(n - 1, p1, p2)


def test_required_episodes_options() -> None:
    assert isinstance(required_episodes(0, 1), int)
    for power, alpha in ((0.9, 0.05), (0.5, 0.05), (0.8, 0.01)):
        n = required_episodes(0.4, 0.6, power=power, alpha=alpha)
        assert definition.power_of(n, 0.4, 0.6, alpha) >= power
        assert definition.power_of(n - 1, 0.4, 0.6, alpha) < power
    for wrong in ((0.5, 0.5), (-0.1, 0.5), (0.5, 1.1)):
        with pytest.raises(ValueError, match=r"p\d: expected"):
            required_episodes(*wrong)
    with pytest.raises(ValueError, match="power: expected"):
        required_episodes(0.5, 0.6, power=1)


def test_policies_compared_in_one_update_or_many() -> None:
    a, b = outcomes(5, 3, 7, 2)
    whole = compared(5, 3, 7, 2)
    parts = fed(
        PolicyComparison(),
        [{"success_a": x, "success_b": y} for x, y in zip(a.split(4), b.split(4), strict=True)],
    )
    assert_same(parts.compute(), whole.compute(), 0)


def test_the_margin_decides_whether_nothing_was_found() -> None:
    """Of 50 episodes that both pass and 50 that neither does.

    Wilson's bounds of 0.5 in 100 are 0.0962 away. The association is (2500 - 50) / 2500 = 0.98, so
    Newcombe's bounds of the difference are sqrt(2 (1 - 0.98)) 0.0962 = 0.0192 away.
    """
    counts = (0, 0, 50, 50)
    assert float(compared(*counts).compute()["high"]) == pytest.approx(0.0192, abs=5e-5)
    assert compared(*counts, margin=0.0193).verdict() == "no difference found"
    assert compared(*counts, margin=0.0192).verdict() == "underpowered"


def test_policies_on_two_devices() -> None:
    metric = PolicyComparison()
    metric.update(torch.tensor([True]), torch.tensor([False]))
    for wrong in ("success_a", "success_b"):
        good = {name: torch.tensor([True]) for name in ("success_a", "success_b")}
        with pytest.raises(ValueError, match=f"^{wrong}: expected"):
            metric.update(**{**good, wrong: torch.empty(1, dtype=torch.bool, device="meta")})
    assert int(metric.compute()["n"]) == 1


def test_required_episodes_are_rounded_up() -> None:
    """h = 2 asin(sqrt(0.5)) - 2 asin(sqrt(0.6)) = -0.201358, z = 1.959964 + 0.841621."""
    exact = 2 * ((1.959964 + 0.841621) / 0.201358) ** 2
    assert exact == pytest.approx(387.17, abs=0.01)
    assert required_episodes(0.5, 0.6) == 388


def test_wilson_bounds_of_impossible_counts() -> None:
    k, n = torch.tensor([3, -1, 1]), torch.tensor([2, 2, 2])
    for bound in map(torch.as_tensor, wilson_interval(k, n)):
        assert bound.isnan().tolist() == [True, True, False]
    for bound in map(torch.as_tensor, wilson_interval(1, torch.tensor([0, 2]))):
        assert bound.isnan().tolist() == [True, False]
