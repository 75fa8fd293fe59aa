"""RDM and TemporalRDM under contract, and what people have tripped over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dynmetrics.rsa import RDM, TemporalRDM, compare_rdms, rdm, spearman
from dynmetrics.rsa.conditions import Conditions
from dynmetrics.rsa.dissimilarity import rdm_of_sums
from dynmetrics.rsa.magnitudes import times_power_of_two
from dynmetrics.rsa.vectors import upper_triangle
from tests.contract import Batch
from tests.reference import rsa as reference
from tests.rsa.cases import PatternContract, tensor

IDS = [30, 10, 20, 50, 40]


def random_batches(seed: int, sizes: tuple[int, ...], shape: tuple[int, ...]) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    return [
        {
            "activations": torch.randn(n, *shape, generator=generator, dtype=torch.float64),
            "condition": torch.tensor(IDS)[torch.randint(5, (n,), generator=generator)],
        }
        for n in sizes
    ]


def stacked(batches: list[Batch], name: str) -> np.ndarray:
    return np.concatenate([batch[name].numpy() for batch in batches])


class TestRDM(PatternContract):
    def make(self) -> RDM:
        return RDM(conditions=IDS, missing="nan")

    def batches(self, seed: int = 0) -> list[Batch]:
        return random_batches(seed, (7, 1, 4, 0, 9), (2, 4))

    def reference(self, batches: list[Batch]) -> Any:
        condition = stacked(batches, "condition").tolist()
        means = reference.condition_means(stacked(batches, "activations"), condition, IDS)
        return reference.rdm(means)

    def rivals(self) -> list[tuple[Any, Any, Batch]]:
        first = self.batches()[0]
        return [
            (self.make(), RDM(conditions=IDS, missing="nan", dissimilarity="cosine"), first),
            (self.make(), RDM(conditions=IDS[::-1], missing="nan"), first),
        ]

    def bad_inputs(self) -> list[Batch]:
        good = self.batches()[0]
        wide = torch.randn(7, 9)
        return [
            {**good, "activations": good["activations"].numpy()},
            {**good, "activations": {"layer": good["activations"]}},
            {**good, "activations": good["activations"][:3]},
            {**good, "activations": wide},
            {**good, "activations": torch.randn(7)},
            {**good, "activations": torch.randn(7, 0)},
            {**good, "activations": torch.randn(7, 8, dtype=torch.complex64)},
            {**good, "condition": good["condition"].float()},
            {**good, "condition": good["condition"][:, None]},
            {**good, "condition": [30, 10, 20, 50, 40, 30]},
            {**good, "condition": [30, 10, 20, 50, 40, 30, 11]},
            {**good, "condition": torch.tensor([30, 10, 20, 50, 40, 30, 11])},
            {**good, "condition": torch.tensor([30, 10, 20, 50, 40, 30, -1])},
            {**good, "condition": [30, 10, 20, 50, 40, 30, 2**70]},
            {**good, "condition": torch.ones(7, dtype=torch.bool)},
            {**good, "condition": [True] * 7},
            {**good, "condition": [30.0] * 7},
            {**good, "condition": ["30"] * 7},
            {**good, "condition": "30"},
            {**good, "condition": None},
            {**good, "fold": torch.zeros(7, dtype=torch.int64)},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        precision = torch.eye(3)
        return [
            lambda: RDM(conditions=1),
            lambda: RDM(conditions=0),
            lambda: RDM(conditions=True),
            lambda: RDM(conditions=None),
            lambda: RDM(conditions="cat"),
            lambda: RDM(conditions=["cat", 1]),
            lambda: RDM(conditions=[1.5, 2.5]),
            lambda: RDM(conditions=[1.0, 2.0]),
            lambda: RDM(conditions=2.0),
            lambda: RDM(conditions=-3),
            lambda: RDM(conditions=[True, False]),
            lambda: RDM(conditions=torch.tensor([True, False])),
            lambda: RDM(conditions=list(torch.tensor([True, False]))),
            lambda: RDM(conditions=np.array([True, False])),
            lambda: RDM(conditions=torch.tensor(3)),
            lambda: RDM(conditions=[-1, 1]),
            lambda: RDM(conditions=[2**70, 1]),
            lambda: RDM(conditions=[-(2**70), 1]),
            lambda: RDM(conditions=[2**63, 1]),
            lambda: RDM(conditions=np.array([2**63, 1], dtype=np.uint64)),
            lambda: RDM(conditions=[b"cat", b"dog"]),
            lambda: RDM(conditions=3, dissimilarity="crossnobis", folds=[2**70, 1]),
            lambda: RDM(conditions=3, dissimilarity="crossnobis", folds=[-1, 1]),
            lambda: RDM(conditions=3, dissimilarity="crossnobis", folds=1),
            lambda: RDM(conditions=10**12),
            lambda: RDM(conditions=3, projection=5, projection_seed=2**70),
            lambda: RDM(conditions=3, projection=5, projection_seed=-(2**70)),
            lambda: RDM(
                conditions=3, dissimilarity="crossnobis", precision=torch.full((2, 2), torch.nan)
            ),
            lambda: RDM(conditions=["cat", "dog", "cat"]),
            lambda: RDM(conditions=3, dissimilarity="manhattan"),
            lambda: RDM(conditions=3, missing="drop"),
            lambda: RDM(conditions=3, projection=0),
            lambda: RDM(conditions=3, projection=5, dissimilarity="cityblock"),
            lambda: RDM(conditions=3, projection_seed=True),
            lambda: RDM(conditions=3, folds=2),
            lambda: RDM(conditions=3, precision=precision),
            lambda: RDM(conditions=3, precision=torch.ones(2, 3), dissimilarity="crossnobis"),
        ]

    def kernel(self) -> tuple[Any, Any]:
        generator = torch.Generator().manual_seed(0)
        sums = torch.randn(1, 5, 7, generator=generator, dtype=torch.float64)
        return rdm_of_sums, (sums, torch.ones(1, 5), "correlation", 1e-16, None)


class TestEuclidean(TestRDM):
    optout = {"ranks_equal_one_process": "states as in TestRDM"}  # noqa: RUF012

    def make(self) -> RDM:
        return RDM(conditions=IDS, missing="nan", dissimilarity="euclidean")

    def reference(self, batches: list[Batch]) -> Any:
        condition = stacked(batches, "condition").tolist()
        means = reference.condition_means(stacked(batches, "activations"), condition, IDS)
        return reference.rdm(means, "euclidean")

    def rivals(self) -> list[tuple[Any, Any, Batch]]:
        other = RDM(conditions=IDS, missing="nan", dissimilarity="sqeuclidean")
        return [(self.make(), other, self.batches()[0])]


class TestProjected(TestRDM):
    """Wider than the patterns, the projection changes nothing; then narrower, see below."""

    optout = {"ranks_equal_one_process": "states as in TestRDM"}  # noqa: RUF012

    def make(self) -> RDM:
        return RDM(conditions=IDS, missing="nan", projection=8)

    def rivals(self) -> list[tuple[Any, Any, Batch]]:
        seeded = RDM(conditions=IDS, missing="nan", projection=8, projection_seed=1)
        return [(self.make(), seeded, self.batches()[0])]


@pytest.mark.filterwarnings("ignore:.*conditions without a")
class TestCrossnobis(PatternContract):
    folds: int | None = 3

    def make(self) -> RDM:
        return RDM(conditions=IDS, missing="nan", dissimilarity="crossnobis", folds=self.folds)

    def batches(self, seed: int = 0) -> list[Batch]:
        batches = random_batches(seed, (11, 2, 9), (3,))
        generator = torch.Generator().manual_seed(seed)
        for batch in batches:
            batch["fold"] = torch.randint(3, (len(batch["condition"]),), generator=generator)
        return batches

    def reference(self, batches: list[Batch]) -> Any:
        names = ("activations", "condition", "fold")
        patterns, condition, fold = (stacked(batches, name) for name in names)
        return reference.crossnobis(patterns, condition.tolist(), fold.tolist(), IDS)

    def rivals(self) -> list[tuple[Any, Any, Batch]]:
        other = RDM(
            conditions=IDS, missing="nan", dissimilarity="crossnobis", precision=torch.eye(3) * 2,
            folds=self.folds,
        )  # fmt: skip
        return [(self.make(), other, self.batches()[0])]

    def bad_inputs(self) -> list[Batch]:
        good = self.batches()[0]
        return [
            {**good, "fold": None},
            {**good, "fold": good["fold"][:3]},
            {**good, "fold": good["fold"].float()},
            {**good, "fold": (good["fold"] - 1).tolist()},
            {**good, "fold": ["a"] * 11},
            {**good, "fold": [10**9] * 11},
            {**good, "fold": 11},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [lambda: RDM(conditions=3, dissimilarity="crossnobis", folds=["a", "a"])]

    def kernel(self) -> tuple[Any, Any]:
        sums = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        return rdm_of_sums, (sums, torch.ones(3, 5), "crossnobis", 1e-16, None)


class TestCrossnobisOfUnknownFolds(TestCrossnobis):
    folds = None
    optout = {  # noqa: RUF012
        "ranks_equal_one_process": "states as in TestCrossnobis",
        "update_never_waits_for_the_device": "without `folds` their number has to be read",
    }


class TestTemporalRDM(PatternContract):
    layout = "BT"

    def make(self) -> TemporalRDM:
        return TemporalRDM(conditions=IDS, missing="nan", layout=self.layout)

    def batches(self, seed: int = 0) -> list[Batch]:
        parts = [random_batches(seed + t, (n,), (t, 6)) for t, n in ((3, 6), (1, 4), (4, 7))]
        return [batch for part in parts for batch in part]

    def reference(self, batches: list[Batch]) -> Any:
        longest = max(batch["activations"].shape[1] for batch in batches)
        rdms = []
        for t in range(longest):
            here = [b for b in batches if b["activations"].shape[1] > t]
            patterns = np.concatenate([b["activations"][:, t].numpy() for b in here])
            condition = stacked(here, "condition").tolist()
            rdms.append(reference.rdm(reference.condition_means(patterns, condition, IDS)))
        return np.stack(rdms)

    def rivals(self) -> list[tuple[Any, Any, Batch]]:
        options: dict[str, Any] = {"conditions": IDS, "layout": self.layout, "missing": "nan"}
        other = TemporalRDM(**options, dissimilarity="cosine")
        return [(self.make(), other, self.batches()[0])]

    def bad_inputs(self) -> list[Batch]:
        good = self.batches()[0]
        return [
            {**good, "activations": good["activations"][:, 0]},
            {**good, "activations": good["activations"][:, :0]},
            {**good, "activations": good["activations"][..., :5]},
            {**good, "condition": (good["condition"] + 1).tolist()},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: TemporalRDM(conditions=3, layout="B"),
            lambda: TemporalRDM(conditions=3, layout="BTC"),
            lambda: TemporalRDM(conditions=[1, 1]),
        ]

    def kernel(self) -> tuple[Any, Any]:
        return TestRDM().kernel()


class TestTimeFirst(TestTemporalRDM):
    layout = "TB"
    optout = {"ranks_equal_one_process": "states as in TestTemporalRDM"}  # noqa: RUF012
    sample_axis = {"activations": 1}  # noqa: RUF012

    def batches(self, seed: int = 0) -> list[Batch]:
        return [
            {**batch, "activations": batch["activations"].transpose(0, 1)}
            for batch in super().batches(seed)
        ]

    def reference(self, batches: list[Batch]) -> Any:
        turned = [{**b, "activations": b["activations"].transpose(0, 1)} for b in batches]
        return super().reference(turned)

    def bad_inputs(self) -> list[Batch]:
        good = self.batches()[0]
        return [{**good, "activations": good["activations"].transpose(0, 1)}]


# ---------------------------------------------------------------------------- ids


def test_ids_come_with_the_rdm_in_the_order_given() -> None:
    """Presentations b, a, b, a give the same RDM as a, b, a, b; "10" need not precede "2"."""
    patterns = torch.randn(4, 3, dtype=torch.float64)
    ids = ["img_2", "img_10"]
    one, other = RDM(conditions=ids), RDM(conditions=ids[::-1])
    for names, rows in ((ids * 2, [0, 1, 2, 3]), (ids[::-1] * 2, [1, 0, 3, 2])):
        metric = RDM(conditions=["img_1", *ids], missing="nan")
        metric.update(patterns[rows], names)
        one.update(patterns[rows], names)
        other.update(patterns[rows], names)
        assert float(metric.compute()[1, 2]) == pytest.approx(float(one.compute()[0, 1]))
    torch.testing.assert_close(one.compute(), other.compute())


def test_ids_in_any_form() -> None:
    patterns = torch.randn(3, 4, dtype=torch.float64)
    for ids in (IDS[:3], torch.tensor(IDS[:3]), np.array(IDS[:3]), range(3)):
        given = list(ids)
        metric = RDM(conditions=ids)
        forms: list[Any] = [torch.as_tensor(given), np.array(given), given, tuple(given)]
        for condition in forms:
            metric.update(patterns, condition)
        torch.testing.assert_close(metric.compute(), rdm(patterns))


def test_unknown_and_missing_ids_are_named() -> None:
    """26,111 images and 26,109 names must not give a shifted RDM."""
    metric = RDM(conditions=["cat", "dog", "car"])
    with pytest.raises(ValueError, match=r"ids among 'cat', 'dog', 'car', got the unknown 'cow'"):
        metric.update(torch.randn(2, 3), ["cat", "cow"])
    with pytest.raises(ValueError, match="condition: expected 3 ids, one for each row"):
        metric.update(torch.randn(3, 3), ["cat", "dog"])
    metric.update(torch.randn(2, 3), ["cat", "dog"])
    with pytest.raises(ValueError, match=r"every condition .see missing., got none of 'car'"):
        metric.compute()
    with pytest.raises(ValueError, match="conditions: expected different ids, got 7 more than"):
        RDM(conditions=[7, 8, 7])


def test_ids_in_a_tensor_are_mapped_without_a_look() -> None:
    conditions = Conditions("conditions", IDS)
    given = torch.tensor([10, 40, -5, 99, 30], dtype=torch.int32)
    rows, known = conditions.rows_of_tensor("condition", given)
    assert rows.tolist() == [1, 4, 0, 0, 0]
    assert known.tolist() == [True, True, False, False, True]
    with pytest.raises(ValueError, match="a sequence of strings"):
        Conditions("conditions", ["a", "b"]).rows("condition", given, 5, given.device)


@pytest.mark.parametrize("largest", [2**63 - 1, 2**40])
def test_ids_use_all_of_64_bits(largest: int) -> None:
    metric = RDM(conditions=[largest, 0])
    patterns = torch.randn(2, 5, dtype=torch.float64)
    metric.update(patterns, torch.tensor([0, largest]))
    metric.update(patterns, torch.tensor([0, largest], dtype=torch.uint64))
    metric.update(patterns, [0, largest])
    torch.testing.assert_close(metric.compute(), rdm(patterns.flip(0)))


def test_an_unknown_id_in_a_tensor_leaves_the_metric_as_it_was() -> None:
    patterns = torch.randn(5, 4, dtype=torch.float64)
    metric = RDM(conditions=IDS)
    metric.update(patterns, torch.tensor(IDS))
    expected, before = metric.compute(), metric.snapshot()
    for wrong in (torch.tensor([30, 99]), torch.tensor([30, 2**64 - 30], dtype=torch.uint64)):
        for call in (metric.update, metric.forward):
            with pytest.raises(ValueError, match=r"^condition: expected ids .* the unknown"):
                call(patterns[:2], wrong)
    assert all(metric.snapshot()[name] is state for name, state in before.items())
    torch.testing.assert_close(metric.compute(), expected)
    folded = RDM(conditions=IDS, dissimilarity="crossnobis", folds=2)
    with pytest.raises(ValueError, match="fold: expected ids among 0, 1, got the unknown 2"):
        folded.update(patterns, torch.tensor(IDS), fold=torch.tensor([0, 1, 2, 0, 1]))


def test_stray_ids_on_another_device_surface_in_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynmetrics.rsa.conditions.on_host", lambda tensor: False)
    patterns = torch.randn(5, 4, dtype=torch.float64)
    metric = RDM(conditions=IDS)
    metric.update(patterns, torch.tensor(IDS))
    expected = metric.compute()
    spoilt = torch.full((3, 4), torch.nan, dtype=torch.float64)
    metric.update(spoilt, torch.tensor([99, -5, 12]))
    with pytest.raises(
        ValueError, match=r"30, 10, .*, got 3 presentations of unknown ids: -5 to 99"
    ):
        metric.compute()
    torch.testing.assert_close(metric.snapshot()["sums"], patterns.view(1, 1, 5, 4))
    metric.reset()
    metric.update(patterns, torch.tensor(IDS))
    torch.testing.assert_close(metric.compute(), expected)
    metric.update(patterns[:1], torch.tensor([7]))
    with pytest.raises(ValueError, match=r"1 presentations of unknown ids: 7$"):
        metric.compute()
    folded = RDM(conditions=IDS, dissimilarity="crossnobis", folds=2)
    folded.update(patterns, torch.tensor(IDS), fold=torch.tensor([0, 1, 2, 0, 1]))
    with pytest.raises(ValueError, match="fold: expected folds among 0, 1, got 1 presentations"):
        folded.compute()


# ---------------------------------------------------------------------------- faults of others


def test_a_zero_pattern_among_five() -> None:
    """NaN in its four pairs, the other six finite, and the condition named."""
    patterns = torch.randn(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    patterns[2] = 0
    metric = RDM(conditions=["a", "b", "c", "d", "e"])
    metric.update(patterns, ["a", "b", "c", "d", "e"])
    with pytest.warns(UserWarning, match="NaN in the RDM: 'c'"):
        result = upper_triangle(metric.compute())
    assert int(result.isnan().sum()) == 4
    assert int(result.isfinite().sum()) == 6


@pytest.mark.parametrize("value", [0.0, 0.1, 1.5, 1000.1, 1e-30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_constant_patterns_whatever_the_constant(value: float, dtype: torch.dtype) -> None:
    patterns = torch.randn(4, 50, generator=torch.Generator().manual_seed(0)).to(dtype)
    patterns[1] = value
    metric = RDM(conditions=4)
    for _ in range(3):
        metric.update(patterns, torch.arange(4))
    with pytest.warns(UserWarning, match="NaN in the RDM: 1"):
        undefined = metric.compute().isnan()
    assert bool(undefined[1].all())
    assert bool(undefined[:, 1].all())
    assert int(undefined.sum()) == 7
    projected = RDM(conditions=4, projection=10)
    projected.update(patterns, torch.arange(4))
    with pytest.warns(UserWarning, match="NaN in the RDM: 1"):
        assert int(projected.compute().isnan().sum()) == 7


def test_a_dead_layer_is_nan_and_no_error() -> None:
    metric = RDM(conditions=4)
    metric.update(torch.zeros(4, 50), torch.arange(4))
    with pytest.warns(UserWarning, match="0, 1, 2, 3"):
        assert bool(metric.compute().isnan().all())
    distances = rdm(torch.zeros(4, 50), "euclidean")
    assert bool((distances == 0).all())


def test_nan_stays_within_its_condition() -> None:
    patterns = torch.randn(4, 5, dtype=torch.float64)
    broken = patterns.clone()
    broken[1, 2] = torch.nan
    for method in ("correlation", "euclidean", "cityblock", "cosine"):
        found, whole = rdm(broken, method), rdm(patterns, method)
        assert bool(found[1].isnan().all())
        kept = [0, 2, 3]
        torch.testing.assert_close(found[kept][:, kept], whole[kept][:, kept])


def test_collinear_patterns_are_exactly_alike() -> None:
    """30 rescaled copies: distances of rounding size must not be ranked."""
    pattern = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    copies = torch.arange(1, 31).unsqueeze(1) * pattern + 0.3
    assert bool((rdm(copies) == 0).all())
    assert bool((rdm(copies - 0.3, "cosine") == 0).all())
    other = upper_triangle(rdm(torch.randn(30, 7)))
    assert bool(spearman(upper_triangle(rdm(copies)), other).isnan())


def test_distances_of_large_neighbours() -> None:
    """512695 and 512804 in float32 are 109 apart."""
    patterns = torch.tensor([[512695.0], [512804.0], [0.0]])
    assert float(rdm(patterns, "euclidean")[0, 1]) == 109.0
    generator = torch.Generator().manual_seed(0)
    near = torch.rand(5, 40, generator=generator, dtype=torch.float64)
    far = torch.cat([near, near[:1] + 1e7])
    expected = tensor(reference.rdm(near, "euclidean"))
    torch.testing.assert_close(rdm(far, "euclidean")[:5, :5], expected, rtol=1e-12, atol=0)


def test_integer_patterns_do_not_overflow() -> None:
    patterns = torch.tensor([[100, -100], [-100, 100]], dtype=torch.int8)
    assert float(rdm(patterns, "sqeuclidean")[0, 1]) == 80000.0


def test_opposite_patterns_are_at_distance_two() -> None:
    patterns = torch.randn(1, 20, dtype=torch.float64)
    found = rdm(torch.cat([patterns, -patterns]))
    assert float(found[0, 1]) == pytest.approx(2.0)


@pytest.mark.parametrize("level", [1e-3, 3e-4, 1e-4])
def test_nearly_equal_patterns_are_ranked_right(level: float) -> None:
    """1 - r from 1e-6 down to 1e-8, in float32 activations."""
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(512, generator=generator, dtype=torch.float64)
    own = torch.randn(60, 512, generator=generator, dtype=torch.float64)
    activations = (common + level * own).to(torch.float32)
    metric = RDM(conditions=60)
    metric.update(activations, torch.arange(60))
    found = upper_triangle(metric.compute())
    assert float(found.median()) < 2 * level**2
    exact = np.longdouble(activations.numpy())
    exact -= exact.mean(1, keepdims=True)
    exact /= np.sqrt((exact**2).sum(1, keepdims=True))
    pairs = [((exact[i] - exact[j]) ** 2).sum() / 2 for i in range(60) for j in range(i + 1, 60)]
    expected = torch.tensor(np.array(pairs, dtype=np.float64))
    assert float(spearman(found, expected)) > 0.999999


def test_a_large_offset_is_harmless() -> None:
    patterns = torch.randn(30, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(rdm(patterns + 1e4), rdm(patterns), rtol=0, atol=1e-9)


def test_a_precision_of_another_width_is_refused_by_update() -> None:
    metric = RDM(conditions=3, dissimilarity="crossnobis", folds=2, precision=torch.eye(4))
    with pytest.raises(ValueError, match=r"precision: expected the shape \(5, 5\)"):
        metric.update(torch.randn(3, 5), torch.arange(3), fold=torch.tensor([0, 1, 0]))
    with pytest.raises(ValueError, match="precision: expected finite numbers"):
        rdm(torch.randn(2, 3, 4), "crossnobis", precision=torch.eye(4) * torch.inf)


@pytest.mark.parametrize("method", ["correlation", "euclidean", "cityblock", "crossnobis"])
@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.bool])
def test_patterns_of_dtypes_without_arithmetic(method: str, dtype: torch.dtype) -> None:
    values = torch.randint(2, (2, 4, 9), generator=torch.Generator().manual_seed(0))
    patterns = values if method == "crossnobis" else values[0]
    torch.testing.assert_close(rdm(patterns.to(dtype), method), rdm(patterns.double(), method))
    if method != "crossnobis":
        metric = RDM(conditions=4, dissimilarity=method)
        metric.update(patterns.to(dtype), torch.arange(4))
        torch.testing.assert_close(metric.compute(), rdm(patterns.double(), method))


@pytest.mark.parametrize("method", ["correlation", "cosine", "euclidean", "cityblock"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_and_untouched_patterns(method: str, dtype: torch.dtype) -> None:
    """Work in place is on memory of our own."""
    patterns = torch.randn(5, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    before = patterns.clone()
    plain = rdm(patterns, method)
    assert torch.equal(patterns, before)
    weights = torch.rand(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    asked = patterns.double().clone().requires_grad_()
    found = rdm(asked, method)
    torch.testing.assert_close(found, plain, rtol=1e-6, atol=1e-9)
    (found * weights).sum().backward()
    assert asked.grad is not None
    step = 1e-6 * torch.eye(30, dtype=torch.float64).view(30, 5, 6)
    for i in range(0, 30, 7):
        up, down = (
            (rdm(patterns.double() + side * step[i], method) * weights).sum() for side in (1, -1)
        )
        numeric = (up - down) / 2e-6
        assert abs(float(numeric - asked.grad.flatten()[i])) < 1e-6


# ---------------------------------------------------------------------------- magnitude


FACTORS = [2.0**e for e in (-1060, -600, -201, 201, 532, 1000)]


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("method", ["correlation", "cosine"])
def test_directions_have_no_scale(factor: float, method: str) -> None:
    """A power of two changes no digit, so the RDM has to be the same to the last one."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(7, 40, generator=generator, dtype=torch.float64)
    if factor < 2.0**-1000:
        # Few digits are left of numbers so small, and those that are left count.
        patterns = (patterns * 100).round()
    expected = rdm(patterns, method)
    assert torch.equal(rdm(patterns * factor, method), expected)
    single = patterns.clone()
    single[2] *= factor
    assert torch.equal(rdm(single, method), expected)
    metric = RDM(conditions=7, dissimilarity=method)
    metric.update(patterns * factor, torch.arange(7))
    assert torch.equal(metric.compute(), expected)
    projected = [RDM(conditions=7, dissimilarity=method, projection=20) for _ in range(2)]
    projected[0].update(patterns, torch.arange(7))
    projected[1].update(patterns * factor, torch.arange(7))
    torch.testing.assert_close(projected[0].compute(), projected[1].compute())


@pytest.mark.parametrize("scale", [1e160, 1e-170])
def test_decimal_scales(scale: float) -> None:
    patterns = torch.randn(7, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for method in ("correlation", "cosine"):
        torch.testing.assert_close(rdm(patterns * scale, method), rdm(patterns, method))
    for method in ("euclidean", "cityblock"):
        found = rdm(patterns * scale, method)
        torch.testing.assert_close(found / scale, rdm(patterns, method), rtol=1e-12, atol=0)


@pytest.mark.parametrize("factor", [2.0**e for e in (-505, -201, 201, 505)])
@pytest.mark.parametrize("method", ["euclidean", "sqeuclidean", "cityblock", "crossnobis"])
def test_distances_follow_the_scale(factor: float, method: str) -> None:
    patterns = torch.randn(3, 7, 20, generator=torch.Generator().manual_seed(0)).double()
    patterns = patterns if method == "crossnobis" else patterns[0]
    power = 2 if method in ("sqeuclidean", "crossnobis") else 1
    found = rdm(patterns * factor, method)
    assert torch.equal(found, rdm(patterns, method) * factor**power)


def test_distances_at_the_ends_of_the_range() -> None:
    large = torch.tensor([[3e307, 0.0], [0.0, 4e307], [0.0, 0.0]], dtype=torch.float64)
    for found, by_hand in (
        (rdm(large, "euclidean"), [5e307, 3e307, 4e307]),
        (rdm(large, "cityblock"), [7e307, 3e307, 4e307]),
        (rdm(large, "sqeuclidean"), [torch.inf] * 3),
        (rdm(large * 1e-617, "sqeuclidean"), [0.0] * 3),
    ):
        torch.testing.assert_close(upper_triangle(found), tensor(by_hand), rtol=1e-14, atol=0)
    small = large * 1e-307 * 1e-170
    torch.testing.assert_close(
        upper_triangle(rdm(small, "euclidean")),
        tensor([5e-170, 3e-170, 4e-170]),
        rtol=1e-14,
        atol=0,
    )


def test_small_patterns_beside_large_ones() -> None:
    """Their distances are found by plain differences, whatever the others are like."""
    patterns = tensor([[3e-170, 0.0], [0.0, 4e-170], [1e160, 0.0], [2e160, 0.0], [0.0, 0.0]])
    for method, expected in (
        ("euclidean", [5e-170, 1e160, 2e160, 3e-170, 1e160, 2e160, 4e-170, 1e160, 1e160, 2e160]),
        ("cityblock", [7e-170, 1e160, 2e160, 3e-170, 1e160, 2e160, 4e-170, 1e160, 1e160, 2e160]),
    ):
        found = upper_triangle(rdm(patterns, method))
        torch.testing.assert_close(found, tensor(expected), rtol=1e-14, atol=0)


def test_every_power_of_two_is_exact() -> None:
    for exponent in range(-1074, 1024):
        one = torch.ones((), dtype=torch.float64)
        found = times_power_of_two(one, torch.tensor(exponent))
        assert float(found) == 2.0**exponent
        back = torch.frexp(found).exponent
        assert float(times_power_of_two(found, -back)) == 0.5


# ---------------------------------------------------------------------------- size


def test_projection_keeps_the_rdm_and_bounds_the_state() -> None:
    generator = torch.Generator().manual_seed(0)
    latent = torch.randn(40, 12, generator=generator)
    patterns = (latent @ torch.randn(12, 20000, generator=generator)).relu()
    exact = upper_triangle(rdm(patterns))
    for method in ("correlation", "cosine", "sqeuclidean"):
        metric = RDM(conditions=40, projection=2000, dissimilarity=method)
        metric.update(patterns[:20], torch.arange(20))
        metric.update(patterns[20:], torch.arange(20, 40))
        assert metric.memory_bytes() < 8 * 40 * 2000 + 1000
        exact = upper_triangle(rdm(patterns, method))
        assert float(compare_rdms(upper_triangle(metric.compute()), exact)) > 0.97


def test_the_draw_of_a_projection_is_that_of_its_seed() -> None:
    patterns = torch.randn(6, 300, generator=torch.Generator().manual_seed(0))
    found: list[Tensor] = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(found))
        metric = RDM(conditions=6, projection=50, projection_seed=seed)
        metric.update(patterns, torch.arange(6))
        found.append(metric.compute())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_blocks_of_features_change_nothing() -> None:
    """More features than a block holds, and more conditions."""
    patterns = torch.randn(300, 2500, generator=torch.Generator().manual_seed(0))
    for method in ("correlation", "sqeuclidean", "cityblock"):
        whole = rdm(patterns, method)
        assert torch.equal(whole, whole.mT)
        assert bool((whole.diagonal() == 0).all())
    squares = torch.cdist(patterns[::9].double(), patterns[::9].double()).square()
    found_squares = rdm(patterns, "sqeuclidean")[::9, ::9]
    torch.testing.assert_close(found_squares, squares, rtol=1e-9, atol=1e-9)
    found = upper_triangle(rdm(patterns)).numpy()
    expected = 1 - np.corrcoef(patterns.double().numpy())
    np.testing.assert_allclose(found, expected[np.triu_indices(300, 1)], rtol=0, atol=1e-12)
    short = upper_triangle(rdm(patterns[:30], "cityblock")).numpy()
    np.testing.assert_allclose(short, reference.upper(reference.rdm(patterns[:30], "cityblock")))


def test_memory_is_one_sum_for_each_condition_and_feature() -> None:
    metric = RDM(conditions=20)
    metric.update(torch.randn(64, 500), torch.randint(20, (64,)))
    assert metric.memory_bytes() - 8 * 20 * 500 < 300


def test_a_number_of_features_that_changes_is_named() -> None:
    for projection in (None, 4):
        metric = RDM(conditions=3, projection=projection)
        metric.update(torch.randn(3, 5), torch.arange(3))
        with pytest.raises(ValueError, match="activations: expected 5 features, as before, got 6"):
            metric.update(torch.randn(3, 6), torch.arange(3))


def test_forward_of_a_batch_that_lacks_conditions() -> None:
    metric = RDM(conditions=4)
    batch = metric(torch.randn(2, 5), torch.tensor([0, 3]))
    assert isinstance(batch, Tensor)
    assert int(batch.isfinite().sum()) == 4
    metric.update(torch.randn(2, 5), torch.tensor([1, 2]))
    assert bool(metric.compute().isfinite().all())
