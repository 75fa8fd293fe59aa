"""Recall and top-k accuracy: the laws, the golden values, and the definition by every order."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from dynmetrics.core import StreamingMetric
from dynmetrics.retrieval import RecallAtK, TopKAccuracy, recall_at_k, topk_accuracy
from dynmetrics.retrieval.ranks import TIES, hit_chance, standing_of_index, standing_of_positives
from tests.contract import Batch, MetricContract, assert_same
from tests.golden_cases import GOLDEN
from tests.reference import retrieval as definition

REFERENCE_OF = {
    "optimistic": "optimistic ranks, NaN counted as a miss",
    "pessimistic": "pessimistic",
    "expected": "expected over random tie order",
    "lowest_index": "ties to the lower index (open_clip rule)",
}


def tied_scores(rng: np.random.Generator, rows: int, columns: int) -> torch.Tensor:
    return torch.tensor(rng.integers(-2, 3, size=(rows, columns)), dtype=torch.float32)


# ---------------------------------------------------------------------------- under the laws


class TestSimilarities(MetricContract):
    optout: ClassVar[dict[str, str]] = {
        "half_precision_inputs": "the scores are small whole numbers, which all types hold",
    }

    def make(self) -> StreamingMetric:
        return RecallAtK(k=(1, 3))

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        return [
            {"similarity": tied_scores(rng, n, 6), "target": torch.tensor(rng.integers(-1, 6, n))}
            for n in (4, 1, 0, 5)
        ]

    def reference(self, batches: list[Batch]) -> Any:
        scores = [row for batch in batches for row in batch["similarity"].tolist()]
        target = [int(t) for batch in batches for t in batch["target"]]
        right = definition.one_hot(target, 6)
        ranks = definition.ranks(scores, right, "expected")
        return {
            "recall_1": np.float64(definition.recall(scores, right, 1, "expected")),
            "recall_3": np.float64(definition.recall(scores, right, 3, "expected")),
            "median_rank": np.float64(np.median(ranks) if ranks else np.nan),
            "mean_rank": np.float64(np.mean(ranks) if ranks else np.nan),
            "n": np.int64(len(ranks)),
            "n_skipped": np.int64(len(scores) - len(ranks)),
        }

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"similarity": torch.zeros(2, 6), "target": torch.tensor([-1, -1])}
        return [
            (RecallAtK(k=1), RecallAtK(k=2), first),
            (RecallAtK(k=1), RecallAtK(k=1, ties="optimistic"), first),
        ]

    def bad_inputs(self) -> list[Batch]:
        scores = torch.zeros(2, 6)
        return [
            {"similarity": scores[0]},
            {"similarity": scores[:, :2]},
            {"similarity": scores, "target": torch.zeros(3, dtype=torch.int64)},
            {"similarity": scores, "target": torch.tensor([0.5, 1.0])},
            {"similarity": scores, "queries": scores},
            {"similarity": torch.zeros(7, 6)},
            {"queries": scores},
            {"queries": scores, "gallery": scores[:1]},
            {"queries": scores, "gallery": scores, "target": torch.tensor([0, 1])},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: RecallAtK(k=0),
            lambda: RecallAtK(k=(1, 1)),
            lambda: RecallAtK(ties="random"),
            lambda: RecallAtK(direction="up"),
            lambda: RecallAtK(metric="l2"),
            lambda: RecallAtK(capacity=0),
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        rng = np.random.default_rng(0)
        return _hits, [tied_scores(rng, 4, 6), torch.tensor([0, 1, 2, -1])]


def _hits(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return hit_chance(standing_of_index(scores, target), 2, "expected")


class TestPairs(MetricContract):
    atol = 1e-6
    half_atol = 1e-6
    depends_on_order = True
    optout: ClassVar[dict[str, str]] = {
        "counts_beyond_float32": "2^26 copies of embeddings do not fit",
    }

    def make(self) -> StreamingMetric:
        return RecallAtK(k=(1, 2), direction="both", capacity=100)

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        result = []
        for n in (3, 1, 0, 5):
            base = rng.normal(size=(n, 4))
            result.append({
                "queries": torch.tensor(base, dtype=torch.float32),
                "gallery": torch.tensor(base + rng.normal(size=(n, 4)), dtype=torch.float32),
            })  # fmt: skip
        return result

    def reference(self, batches: list[Batch]) -> Any:
        x, y = (
            np.concatenate([batch[name].double().numpy() for batch in batches])
            for name in ("queries", "gallery")
        )
        x, y = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y))
        result: dict[str, Any] = {}
        for prefix, scores in (("", x @ y.T), ("gallery_", y @ x.T)):
            right = definition.one_hot(range(len(scores)), len(scores))
            ranks = definition.ranks(scores.tolist(), right, "expected")
            for k in (1, 2):
                value = definition.recall(scores.tolist(), right, k, "expected")
                result[f"{prefix}recall_{k}"] = np.float64(value if k <= len(x) else np.nan)
            result[f"{prefix}median_rank"] = np.float64(np.median(ranks) if ranks else np.nan)
            result[f"{prefix}mean_rank"] = np.float64(np.mean(ranks) if ranks else np.nan)
            result[f"{prefix}n"] = np.int64(len(ranks))
            result[f"{prefix}n_skipped"] = np.int64(0)
        return result

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"queries": torch.zeros(2, 4), "gallery": torch.zeros(2, 4)}
        return [(RecallAtK(k=1), RecallAtK(k=1, metric="dot"), first)]

    def bad_inputs(self) -> list[Batch]:
        rows = torch.zeros(2, 4)
        return [
            {"queries": rows, "gallery": torch.zeros(2, 5)},
            {"queries": rows.long(), "gallery": rows},
            {"similarity": torch.zeros(2, 4)},
            {"queries": torch.zeros(101, 4), "gallery": torch.zeros(101, 4)},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [lambda: RecallAtK(k="1")]  # type: ignore[arg-type]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return _hits, [torch.rand(3, 4), torch.tensor([0, 1, 2])]


GALLERY = torch.tensor(np.random.default_rng(7).integers(-2, 3, (6, 4)), dtype=torch.float64)


class TestKnownGallery(MetricContract):
    def make(self) -> StreamingMetric:
        return RecallAtK(k=(1, 3), metric="dot", gallery=GALLERY)

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        return [
            {
                "queries": torch.tensor(rng.integers(-3, 4, (n, 4)), dtype=torch.float32),
                "target": torch.tensor(rng.integers(-1, 6, n)),
            }
            for n in (4, 1, 0, 5)
        ]

    def reference(self, batches: list[Batch]) -> Any:
        scores = [
            [float(np.dot(query, row)) for row in GALLERY.numpy()]
            for batch in batches
            for query in batch["queries"].double().numpy()
        ]
        target = [int(t) for batch in batches for t in batch["target"]]
        right = definition.one_hot(target, 6)
        ranks = definition.ranks(scores, right, "expected")
        return {
            "recall_1": np.float64(definition.recall(scores, right, 1, "expected")),
            "recall_3": np.float64(definition.recall(scores, right, 3, "expected")),
            "median_rank": np.float64(np.median(ranks) if ranks else np.nan),
            "mean_rank": np.float64(np.mean(ranks) if ranks else np.nan),
            "n": np.int64(len(ranks)),
            "n_skipped": np.int64(len(scores) - len(ranks)),
        }

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"queries": torch.zeros(2, 4), "target": torch.tensor([-1, -1])}
        return [
            (self.make(), RecallAtK(k=(1, 3), metric="dot", gallery=GALLERY + 1), first),
            (self.make(), RecallAtK(k=(1, 3), gallery=GALLERY), first),
        ]

    def bad_inputs(self) -> list[Batch]:
        queries, target = torch.zeros(2, 4), torch.tensor([0, 1])
        return [
            {"queries": queries, "target": None},
            {"queries": queries, "target": target[:1]},
            {"queries": queries[:, :3], "target": target},
            {"queries": queries.long(), "target": target},
            {"queries": queries, "target": target, "gallery": queries},
            {"queries": queries, "target": target, "similarity": torch.zeros(2, 6)},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: RecallAtK(k=7, gallery=GALLERY),
            lambda: RecallAtK(k=1, gallery=GALLERY[0]),
            lambda: RecallAtK(k=1, gallery=GALLERY.long()),
            lambda: RecallAtK(k=1, gallery=GALLERY, direction="both"),
            lambda: RecallAtK(storage="float16"),
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return _hits, [torch.rand(3, 4), torch.tensor([0, 1, 2])]


@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_a_known_gallery_ranks_as_pairs_do(metric: str) -> None:
    rng = torch.Generator().manual_seed(0)
    queries, gallery = torch.randn(2, 30, 5, generator=rng)
    pairs = RecallAtK(k=(1, 5), metric=metric)
    pairs.update(queries=queries, gallery=gallery)
    known = RecallAtK(k=(1, 5), metric=metric, gallery=gallery)
    for own in torch.split(torch.arange(30), 7):
        known.update(queries[own], target=own)
    assert_same(known.compute(), pairs.compute(), 1e-12)
    several = RecallAtK(k=(1, 5), metric=metric, gallery=gallery)
    several.update(queries, target=torch.eye(30, dtype=torch.bool))
    assert_same(several.compute(), pairs.compute(), 1e-12)
    before = known.memory_bytes()
    known.update(queries, target=torch.arange(30))
    assert known.memory_bytes() == before


class TestTopK(MetricContract):
    optout: ClassVar[dict[str, str]] = {
        "half_precision_inputs": "the scores are small whole numbers, which all types hold",
    }

    def make(self) -> StreamingMetric:
        return TopKAccuracy(k=(1, 2))

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        return [
            {"preds": tied_scores(rng, n, 5), "target": torch.tensor(rng.integers(-1, 5, n))}
            for n in (4, 1, 0, 5)
        ]

    def reference(self, batches: list[Batch]) -> Any:
        scores = [row for batch in batches for row in batch["preds"].tolist()]
        target = [int(t) for batch in batches for t in batch["target"]]
        right = definition.one_hot(target, 5)
        return {
            f"top{k}": np.float64(definition.recall(scores, right, k, "expected")) for k in (1, 2)
        }

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"preds": torch.zeros(2, 5), "target": torch.tensor([-1, -1])}
        return [
            (TopKAccuracy(k=1), TopKAccuracy(k=5), first),
            (TopKAccuracy(), TopKAccuracy(ties="pessimistic"), first),
        ]

    def bad_inputs(self) -> list[Batch]:
        good = torch.tensor([0, 1])
        return [
            {"preds": torch.zeros(2, 1), "target": good},
            {"preds": torch.zeros(2, 5, 1), "target": good},
            {"preds": torch.zeros(2, 5), "target": torch.tensor([0])},
            {"preds": torch.zeros(2, 5).long(), "target": good},
            {"preds": torch.zeros(2, 5), "target": torch.ones(2, 4, dtype=torch.bool)},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: TopKAccuracy(k=()),
            lambda: TopKAccuracy(k=3, num_classes=2),
            lambda: TopKAccuracy(average="weighted"),
            lambda: TopKAccuracy(num_classes=0),
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return _hits, [torch.rand(3, 4), torch.tensor([0, 1, 7])]


class TestTopKPerClass(TestTopK):
    def make(self) -> StreamingMetric:
        return TopKAccuracy(k=2, average="none")

    def reference(self, batches: list[Batch]) -> Any:
        scores = [row for batch in batches for row in batch["preds"].tolist()]
        target = [int(t) for batch in batches for t in batch["target"]]
        if not any(len(batch["preds"]) for batch in batches):
            return np.zeros(0)
        rates = []
        for c in range(5):
            chosen = [row for row, t in zip(scores, target, strict=True) if t == c]
            right = definition.one_hot([c] * len(chosen), 5)
            rates.append(definition.recall(chosen, right, 2, "expected"))
        return np.array(rates)

    def bad_inputs(self) -> list[Batch]:
        marks = torch.ones(2, 5, dtype=torch.bool)
        return [*super().bad_inputs()[:1], {"preds": torch.zeros(2, 5), "target": marks}]


# ---------------------------------------------------------------------------- golden values


def cases(name: str) -> list[Any]:
    raw = json.loads((GOLDEN / "world" / f"{name}.json").read_text())
    return [pytest.param(case, id=case["case"]) for case in raw]


def scores_of(case: Any, name: str) -> torch.Tensor:
    rows = [[float(value) for value in row] for row in case["inputs"][name]]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("case", cases("recall_at_k"))
@pytest.mark.parametrize("split", ["whole", "one by one", "merged"])
def test_golden_recall(case: Any, split: str) -> None:
    scores, ks = scores_of(case, "similarity"), tuple(case["params"]["k"])
    several = "positives" in case["inputs"]
    target = torch.tensor(case["inputs"]["positives" if several else "targets"])
    target = target.bool() if several else target
    for ties in TIES if not several else ("expected", "lowest_index"):
        expected = case["expected"]["recommended_default"]
        if not several:
            expected = case["expected"]["references"][REFERENCE_OF[ties]]
        metric = RecallAtK(k=ks, ties=ties)
        if split == "whole":
            metric.update(similarity=scores, target=target)
        else:
            for row in range(len(scores)):
                part = RecallAtK(k=ks, ties=ties) if split == "merged" else metric
                part.update(similarity=scores[row : row + 1], target=target[row : row + 1])
                if split == "merged":
                    metric.merge_state(part)
        result = metric.compute()
        for k in ks:
            assert float(result[f"recall_{k}"]) == pytest.approx(expected[f"R@{k}"], rel=1e-6)
        if several:
            assert int(result["n"]) == case["expected"]["references"]["k=1"]["queries_used"]
    if split == "whole":
        function = recall_at_k(scores, ks, target)
        assert function == pytest.approx(case["expected"]["recommended_default"], rel=1e-6)
        one = recall_at_k(scores, ks[0], target)
        assert one == pytest.approx(case["expected"]["recommended_default"][f"R@{ks[0]}"], rel=1e-6)


@pytest.mark.parametrize("case", cases("topk_accuracy"))
def test_golden_topk(case: Any) -> None:
    logits, labels = scores_of(case, "logits"), torch.tensor(case["inputs"]["labels"])
    k, expected = case["params"]["k"], case["expected"]["recommended_default"]
    if isinstance(expected, dict):
        with pytest.raises(ValueError, match="k: expected at most"):
            topk_accuracy(logits, labels, k)
        return
    assert topk_accuracy(logits, labels, k) == pytest.approx(expected, rel=1e-6)
    metric = TopKAccuracy(k=k)
    for row in range(len(logits)):
        metric.update(logits[row : row + 1], labels[row : row + 1])
    assert float(metric.compute()) == pytest.approx(expected, rel=1e-6)  # type: ignore[arg-type]
    for ties in ("optimistic", "pessimistic"):
        value = case["expected"]["references"][ties]
        assert topk_accuracy(logits, labels, k, ties=ties) == pytest.approx(value, rel=1e-6)


# ---------------------------------------------------------------------------- single questions


@pytest.mark.parametrize("ties", TIES)
def test_several_right_candidates_by_every_order(ties: str) -> None:
    rng = np.random.default_rng(1)
    scores = tied_scores(rng, 60, 6)
    marks = torch.tensor(rng.random((60, 6)) < 0.35)
    standing = standing_of_positives(scores, marks)
    metric = RecallAtK(k=(1, 2, 4), ties=ties)
    metric.update(similarity=scores, target=marks)
    result = metric.compute()
    for k in (1, 2, 4):
        expected = definition.recall(scores.tolist(), marks.tolist(), k, ties)
        assert float(result[f"recall_{k}"]) == pytest.approx(expected, abs=1e-12)
    mean = np.mean(definition.ranks(scores.tolist(), marks.tolist(), ties))
    assert float(result["mean_rank"]) == pytest.approx(mean, abs=1e-12)
    assert int(standing.valid.sum()) == int(result["n"])


def test_issue_negative_scores_are_retrieved_all_the_same() -> None:
    """Scores (-.1, -.2, -.3), the first relevant: recall at 1 is 1."""
    assert recall_at_k(torch.tensor([[-0.1, -0.2, -0.3]]), 1) == 1.0


def test_issue_any_of_five_captions_counts() -> None:
    """An image whose second caption is found is found, though its first one is not."""
    scores = torch.zeros(2, 10)
    scores[0, 1] = scores[1, 2] = 1.0
    captions = torch.arange(10) // 5 == torch.arange(2).unsqueeze(1)
    metric = RecallAtK(k=1)
    metric.update(similarity=scores, target=captions)
    assert float(metric.compute()["recall_1"]) == 0.5
    assert recall_at_k(scores, 1, torch.tensor([0, 5])) == 0.0


@pytest.mark.parametrize("k", [1, 2, 3])
def test_issue_ties_do_not_depend_on_the_sort(k: int) -> None:
    """Of (3, 2, 3, 2) either 3 is first; a constant scorer gets k / C, wherever the label is."""
    level = torch.tensor([[3.0, 2.0, 3.0, 2.0]])
    table = {1: (0.5, 0.0, 0.5, 0.0), 2: (1.0, 0.0, 1.0, 0.0), 3: (1.0, 0.5, 1.0, 0.5)}
    expected: tuple[float, ...] = table[k]
    for label in range(4):
        target = torch.tensor([label])
        assert topk_accuracy(level, target, k) == expected[label]
        assert recall_at_k(level, k, target) == expected[label]
        assert topk_accuracy(torch.ones(1, 4), target, k) == k / 4
        assert recall_at_k(torch.ones(1, 4), k, target) == k / 4


def test_issue_collapsed_embeddings_get_chance() -> None:
    metric = RecallAtK(k=(1, 5))
    metric.update(queries=torch.ones(20, 3), gallery=torch.ones(20, 3))
    result = metric.compute()
    assert float(result["recall_1"]) == pytest.approx(1 / 20)
    assert float(result["recall_5"]) == pytest.approx(5 / 20)
    assert float(result["median_rank"]) == 10.5


def test_issue_duplicates_do_not_beat_each_other_by_rounding() -> None:
    """A copy of the pair's own row in the gallery ties with it; it never scores strictly more."""
    rng = torch.Generator().manual_seed(0)
    base = torch.randn(200, 64, generator=rng)
    metric = RecallAtK(k=1, ties="optimistic")
    metric.update(queries=base.repeat(3, 1), gallery=base.repeat(3, 1))
    assert float(metric.compute()["recall_1"]) == 1.0


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = torch.Generator().manual_seed(0)
    queries = torch.randn(30, 8, generator=rng)
    gallery = queries + 0.8 * torch.randn(30, 8, generator=rng)
    results = []
    for elements in (1 << 22, 70, 1):
        monkeypatch.setattr("dynmetrics.retrieval.embeddings._BLOCK_ELEMENTS", elements)
        metric = RecallAtK(k=(1, 3), direction="both")
        metric.update(queries=queries, gallery=gallery)
        results.append(metric.compute())
    for result in results[1:]:
        assert_same(result, results[0], 0)
    assert 0 < float(results[0]["recall_1"]) < 1


@pytest.mark.parametrize("ties", TIES)
def test_blocks_of_similarities_change_nothing(monkeypatch: pytest.MonkeyPatch, ties: str) -> None:
    rng = np.random.default_rng(2)
    scores = tied_scores(rng, 20, 6)
    scores[3, 2] = torch.nan
    one, several = torch.tensor(rng.integers(-1, 7, 20)), torch.tensor(rng.random((20, 6)) < 0.3)
    for target in (one, several):
        results = []
        for elements in (1 << 18, 20, 1):
            monkeypatch.setattr("dynmetrics.retrieval.ranks._BLOCK_ELEMENTS", elements)
            metric = RecallAtK(k=(1, 3), ties=ties)
            metric.update(similarity=scores, target=target)
            results.append(metric.compute())
        assert_same(results[1], results[0], 1e-12)
        assert_same(results[2], results[0], 1e-12)


def test_nan_is_a_miss_and_stands_last() -> None:
    broken = RecallAtK(k=1)
    broken.update(queries=torch.full((3, 4), torch.nan), gallery=torch.ones(3, 4))
    given = RecallAtK(k=1)
    given.update(similarity=torch.tensor([[2.0, torch.nan, 1.0]]), target=torch.tensor([0]))
    for metric in (broken, given):
        result = metric.compute()
        values = [float(result[name]) for name in ("recall_1", "median_rank", "mean_rank")]
        assert values == [0, 4, 4]


def test_a_target_outside_is_a_miss() -> None:
    """Not the last candidate, though it has the highest score."""
    scores, target = torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]), torch.tensor([3, 2])
    assert recall_at_k(scores, 1, target) == 0.5
    assert topk_accuracy(scores, target) == 0.5
    per_class = TopKAccuracy(average="none")
    per_class.update(scores, target)
    with pytest.warns(UserWarning, match="1 labels of no class are left out"):
        assert_same(per_class.compute(), [np.nan, np.nan, 1.0], 0)


def test_macro_and_labels_outside() -> None:
    metric = TopKAccuracy(average="macro")
    scores = torch.tensor([[2.0, 1.0, 0.0], [2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 0.0]])
    metric.update(scores, torch.tensor([0, 1, 1, -1]))
    assert float(metric.compute()) == pytest.approx((1.0 + 0.5) / 2)  # type: ignore[arg-type]
    micro = TopKAccuracy()
    micro.update(scores, torch.tensor([0, 7, -1, 0]))
    assert float(micro.compute()) == pytest.approx(2 / 3)  # type: ignore[arg-type]


def test_a_gallery_row_with_a_nan_is_no_candidate() -> None:
    """It spoils its own query, and none of the others."""
    queries = torch.eye(4)
    gallery = torch.eye(4)
    gallery[2, 0] = torch.nan
    pairs = RecallAtK(k=1)
    pairs.update(queries=queries, gallery=gallery)
    known = RecallAtK(k=1, gallery=gallery)
    known.update(queries, target=torch.arange(4))
    for result in (pairs.compute(), known.compute()):
        assert [float(result[name]) for name in ("recall_1", "n")] == [0.75, 4]


def test_more_places_than_pairs_are_undefined() -> None:
    metric = RecallAtK(k=(1, 2, 3))
    metric.update(queries=torch.eye(2), gallery=torch.eye(2))
    result = metric.compute()
    recalls = [float(result[f"recall_{k}"]) for k in (1, 2, 3)]
    assert recalls[:2] == [1.0, 1.0]
    assert np.isnan(recalls[2])


def test_pairs_in_float64_are_compared_in_float64() -> None:
    """In float32 both candidates are the same."""
    gallery = torch.tensor([[1.0, 1e-9], [1.0, 0.0]], dtype=torch.float64)
    metric = RecallAtK(k=1, metric="dot", storage="float64", ties="pessimistic")
    metric.update(queries=torch.tensor([[0.0, 1.0], [0.0, -1.0]]).double(), gallery=gallery + 1)
    assert float(metric.compute()["recall_1"]) == 1.0


@pytest.mark.parametrize("scale", [1e-40, 1e-25, 1e25, 1e38])
def test_cosines_have_no_scale(scale: float) -> None:
    rng = torch.Generator().manual_seed(0)
    queries, gallery = torch.randn(2, 20, 5, generator=rng, dtype=torch.float64)
    results = []
    for factor in (1.0, scale):
        metric = RecallAtK(k=(1, 5), storage="float64")
        metric.update(queries=factor * queries, gallery=gallery)
        results.append(metric.compute())
    assert_same(results[1], results[0], 0)
