"""KNNAccuracy under all laws, its ties, and the search behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from dynmetrics.core import StreamingMetric
from dynmetrics.core.exchange import NoExchange
from dynmetrics.representation import KNNAccuracy, knn_accuracy
from dynmetrics.representation.distances import nearest_by_distance
from dynmetrics.representation.neighbours import ABSENT, Frame, decoded, keys_of, merged, nearest
from dynmetrics.representation.votes import neighbour_weights
from tests.contract import Batch, MetricContract, quietly
from tests.golden_cases import Case, world_cases
from tests.reference import representation_probes as definition
from tests.representation.test_linear_probe import split_of

CASES = world_cases("knn_accuracy")


class TestKNN(MetricContract):
    optout: ClassVar[dict[str, str]] = {"counts_beyond_float32": "2^26 copies of rows do not fit"}
    options: ClassVar[dict[str, Any]] = {"k": 4, "temperature": 0.2, "center": True}

    def make(self) -> StreamingMetric:
        return KNNAccuracy(**self.options, storage="float64")

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        batches = []
        sizes = ((9, "train"), (8, "test"), (0, "train"), (12, "train"), (1, "test"), (0, "test"))
        for n, split in sizes:
            target = rng.integers(0, 3, n)
            features = 2 + np.eye(3)[target] + 0.7 * rng.normal(size=(n, 3))
            features = features.astype(np.float32).astype(np.float64)
            batch = {"features": torch.tensor(features), "target": torch.tensor(target)}
            batches.append({**batch, "split": split, **self.ids(n, rng)})
        return batches

    def ids(self, n: int, rng: np.random.Generator) -> Batch:
        return {}

    def reference(self, batches: list[Batch]) -> Any:
        bank, labels = split_of(batches, "train", 3)
        queries, target = split_of(batches, "test", 3)
        score = float("nan")
        if len(bank) and len(queries):
            said = definition.knn_predictions(bank, labels, queries, **self.options)
            score = definition.accuracy(said, target)
        counts = {"n_train": np.int64(len(bank)), "n_test": np.int64(len(queries))}
        return {"score": np.float64(score), **counts}

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"features": torch.eye(3), "target": torch.tensor([0, 1, 2]), "split": "train"}
        return [(KNNAccuracy(), KNNAccuracy(k=3), first)]

    def bad_inputs(self) -> list[Batch]:
        x, y = torch.zeros(2, 3), torch.tensor([0, 1])
        return [
            {"features": x, "target": y, "split": "bank"},
            {"features": torch.zeros(2, 5), "target": y, "split": "train"},
            {"features": torch.zeros(2, 5), "target": y, "split": "test"},
            {"features": x, "target": torch.zeros(2, 2), "split": "train"},
            {"features": x, "target": torch.tensor([0.5, 1.0]), "split": "train"},
            {"features": x[0], "target": y, "split": "train"},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: KNNAccuracy(k=0),
            lambda: KNNAccuracy(temperature=0),
            lambda: KNNAccuracy(temperature=float("nan")),
            lambda: KNNAccuracy(metric="manhattan"),
            lambda: KNNAccuracy(weights="linear"),
            lambda: KNNAccuracy(metric="dot", weights="inverse"),
            lambda: KNNAccuracy(overflow="ring"),
            lambda: KNNAccuracy(overflow="drop", capacity=3),
            lambda: KNNAccuracy(capacity=0),
            lambda: KNNAccuracy(num_classes=0),
            lambda: KNNAccuracy(top_k=0),
            lambda: KNNAccuracy(seed=1.5),  # type: ignore[arg-type]
            lambda: KNNAccuracy(storage="int8"),
            lambda: KNNAccuracy(leave_one_out=1),  # type: ignore[arg-type]
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        keys = keys_of(torch.rand(4, 3), torch.arange(3))
        return neighbour_weights, [keys, "cosine", "exp", 0.1]


class TestLeaveOneOut(TestKNN):
    """The bank is tested against itself where there is no test split."""

    def make(self) -> StreamingMetric:
        options: dict[str, Any] = {"metric": "euclidean", "weights": "inverse"}
        return KNNAccuracy(k=4, leave_one_out=True, average="macro", storage="float64", **options)

    def ids(self, n: int, rng: np.random.Generator) -> Batch:
        return {"sample_id": torch.tensor(rng.integers(0, 12, n))}

    def reference(self, batches: list[Batch]) -> Any:
        bank, labels = split_of(batches, "train", 3)
        queries, target = split_of(batches, "test", 3)
        ids = {
            split: np.concatenate(
                [[], *(b["sample_id"].numpy() for b in batches if b["split"] == split)]
            )
            for split in ("train", "test")
        }
        if not len(queries):
            queries, target, ids["test"] = bank, labels, ids["train"]
        score = float("nan")
        if len(bank) and len(queries):
            options: dict[str, Any] = {"metric": "euclidean", "weights": "inverse", "k": 4}
            names: dict[str, Any] = {"bank_ids": ids["train"], "query_ids": ids["test"]}
            said = definition.knn_predictions(bank, labels, queries, **options, **names)
            score = definition.accuracy(said, target, "macro")
        counts = {"n_train": np.int64(len(bank)), "n_test": np.int64(len(queries))}
        return {"score": np.float64(score), **counts}

    def bad_inputs(self) -> list[Batch]:
        x, y = torch.zeros(2, 3), torch.tensor([0, 1])
        batch = {"features": x, "target": y, "split": "train"}
        return [batch, {**batch, "sample_id": y[:1]}, {**batch, "sample_id": y + 0.5}]


class TestReservoir(TestKNN):
    """A bank of more rows than its capacity: the same sample along every route."""

    def make(self) -> StreamingMetric:
        return KNNAccuracy(k=4, capacity=8, overflow="reservoir", storage="float64", weights="exp")

    def reference(self, batches: list[Batch]) -> Any:
        """The sample of one batch; its randomness is tested with the core."""
        metric = KNNAccuracy(k=4, capacity=8, overflow="reservoir", storage="float64")
        for split in ("train", "test"):
            x, y = split_of(batches, split, 3)
            metric.update(torch.tensor(x), torch.tensor(y).long(), split=split)
        return quietly(metric.compute)


# ---------------------------------------------------------------------------- golden values


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("storage", ["float32", "float64", "float16"])
def test_golden_values(case: Case, storage: str) -> None:
    x = [torch.tensor(case.inputs[f"{split}_x"]) for split in ("train", "test")]
    y = [torch.tensor(case.inputs[f"{split}_y"]) for split in ("train", "test")]
    expected = case.expected["recommended_default"]
    probe = knn_accuracy(x[0], y[0], x[1], y[1], **case.params, storage=storage)
    assert isinstance(probe.score, float)
    case.check(probe.score, expected["score"])
    assert probe.predictions.tolist() == expected["predictions"]
    for parts in (1, 5):
        metric = KNNAccuracy(**case.params, storage=storage)
        for i in (1, 0):
            for features, target in zip(
                x[i].tensor_split(parts), y[i].tensor_split(parts), strict=True
            ):
                metric.update(features, target, split=("train", "test")[i])
        result = metric.compute()
        case.check(result["score"], expected["score"])
        assert (int(result["n_train"]), int(result["n_test"])) == (len(x[0]), len(x[1]))


# ---------------------------------------------------------------------------- the search


def found(bank: Tensor, queries: Tensor, k: int, metric: str, **options: Any) -> Tensor:
    """The keys of the nearest rows."""
    frame = Frame.of(bank, queries, metric, False, len(bank), NoExchange())
    if metric == "euclidean":
        return nearest_by_distance(bank, queries, k, frame, **options)[0]
    return nearest(bank, queries, k, metric, frame, **options)[0]


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 9), (64, 3), (65, 64), (3000, 20)])
def test_the_search_is_exact(metric: str, n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    # Whole numbers make ties common and products exact.
    bank = torch.tensor(rng.integers(-2, 3, (n, 4)), dtype=torch.float32)
    queries = torch.tensor(rng.integers(-2, 3, (300, 4)), dtype=torch.float32)
    similarity, index = decoded(found(bank, queries, k, metric))
    x, q = bank.double(), queries.double()
    if metric == "cosine":
        x, q = (v / v.norm(dim=1, keepdim=True).clamp(min=1e-9) for v in (x, q))
        x, q = x.float().double(), q.float().double()
    scores = -torch.cdist(q, x).square() if metric == "euclidean" else q @ x.T
    table = scores.float().numpy().round(6)
    for i in range(len(queries)):
        order = sorted(range(n), key=lambda j: (-table[i, j], j))[:k]
        if metric == "cosine":
            np.testing.assert_allclose(similarity[i, : len(order)], table[i, order], atol=1e-6)
        else:
            assert index[i, : len(order)].tolist() == order
    assert bool((similarity[:, min(n, k) :] == -torch.inf).all())


def test_blocks_and_parts_are_no_borders(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    bank = torch.tensor(rng.integers(-1, 2, (1000, 5)), dtype=torch.float32)
    queries = torch.tensor(rng.integers(-1, 2, (50, 5)), dtype=torch.float32)
    ids, own = torch.arange(1000), torch.arange(50)
    whole = found(bank, queries, 7, "dot", bank_ids=ids, query_ids=own)
    halves = [
        found(bank[a:b], queries, 7, "dot", first=a, bank_ids=ids[a:b], query_ids=own)
        for a, b in ((500, 1000), (0, 500))
    ]
    assert torch.equal(merged(*halves), whole)
    for name, size in (("_PART", 128), ("_BLOCK", 64), ("_QUERIES", 7)):
        monkeypatch.setattr(f"dynmetrics.representation.neighbours.{name}", size)
    assert torch.equal(found(bank, queries, 7, "dot", bank_ids=ids, query_ids=own), whole)
    assert not bool((decoded(whole)[1] == own.unsqueeze(1)).any())


def test_keys_sort_like_similarities() -> None:
    values = torch.tensor([-torch.inf, -2.0, -1e-30, -0.0, 0.0, 1e-30, 1.0, 2.0])
    keys = keys_of(values, torch.arange(8))
    assert keys[0] == ABSENT
    assert keys.sort().values.tolist() == keys[[0, 1, 2, 4, 3, 5, 6, 7]].tolist()
    similarity, index = decoded(keys)
    assert torch.equal(similarity, values.double())
    assert index.tolist() == list(range(8))


def test_distances_far_from_the_origin() -> None:
    """The difference of squares in float32 would be 0 between neighbours."""
    x = torch.tensor([[512695.0], [512804.0], [512700.0]], dtype=torch.float64)
    metric = KNNAccuracy(k=1, metric="euclidean", storage="float64")
    metric.update(x[:2], torch.tensor([0, 1]), split="train")
    metric.update(x[2:], torch.tensor([0]), split="test")
    assert float(metric.compute()["score"]) == 1.0


def test_distances_within_clusters_far_apart() -> None:
    """Around any one centre, the squares of 1e8 have no digit left for distances of 1."""
    rng = np.random.default_rng(0)
    centres = 1e8 * np.eye(4)
    bank = np.repeat(centres, 40, 0) + rng.normal(size=(160, 4))
    queries = np.repeat(centres, 10, 0) + rng.normal(size=(40, 4))
    keys = found(torch.tensor(bank), torch.tensor(queries), 7, "euclidean")
    distances = np.sqrt(((queries[:, None] - bank) ** 2).sum(2))
    expected = distances.argsort(1)[:, :7]
    assert decoded(keys)[1].tolist() == expected.tolist()
    labels = rng.integers(0, 3, 160)
    options: dict[str, Any] = {"k": 7, "metric": "euclidean", "weights": "inverse"}
    predicted = definition.knn_predictions(bank, labels, queries, **options, temperature=0.07)
    probe = knn_accuracy(
        torch.tensor(bank),
        torch.tensor(labels),
        torch.tensor(queries),
        torch.zeros(40).long(),
        **options,
        storage="float64",
    )
    assert probe.predictions.tolist() == predicted.tolist()


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot"])
@pytest.mark.parametrize("scale", [2.0**-100, 2.0**-80, 2.0**66, 2.0**100])
def test_the_scale_of_features_decides_nothing(scale: float, metric: str, center: bool) -> None:
    """Squares of such float32 numbers leave their range."""
    generator = torch.Generator().manual_seed(0)
    bank, queries = (torch.randn(n, 8, generator=generator) for n in (90, 30))
    labels = torch.arange(90) % 5
    options: dict[str, Any] = {"k": 5, "metric": metric, "center": center, "weights": "uniform"}
    plain = knn_accuracy(bank, labels, queries, labels[:30], **options)
    scaled = knn_accuracy(scale * bank, labels, scale * queries, labels[:30], **options)
    assert scaled.predictions.tolist() == plain.predictions.tolist()
    assert scaled.score == plain.score


def test_labels_of_any_size() -> None:
    """Neither votes nor ranks take memory for classes that nobody has."""
    x = torch.eye(3)
    labels = torch.tensor([0, 10**11, 10**18])
    metric = KNNAccuracy(k=2, temperature=0.1, top_k=2, average="macro")
    metric.update(x, labels, split="train")
    metric.update(x, labels, split="test")
    assert float(metric.compute()["score"]) == 1.0
    assert knn_accuracy(x, labels, x, labels, k=1).predictions.tolist() == labels.tolist()


# ---------------------------------------------------------------------------- votes


def test_a_low_temperature_does_not_overflow() -> None:
    x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    probe = knn_accuracy(x, torch.tensor([2, 0, 1]), x[:1], torch.tensor([2]), 3, 1e-4)
    assert probe.predictions.tolist() == [2]


def test_equal_votes_go_to_the_lower_class() -> None:
    x = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    y = torch.tensor([3, 1])
    query = torch.tensor([[1.0, 0.0]])
    assert knn_accuracy(x, y, query, y[:1], k=2).predictions.tolist() == [1]
    metric = KNNAccuracy(k=2, top_k=2)
    metric.update(x, y, split="train")
    metric.update(query, y[:1], split="test")
    result = metric.compute()
    assert (float(result["score"]), float(result["top2"])) == (0.0, 1.0)
    assert list(result) == ["score", "n_train", "n_test", "top2"] == list(metric.axes)


def test_equally_near_rows_count_from_the_first() -> None:
    x = torch.ones(200, 3)
    y = torch.arange(200)
    assert knn_accuracy(x, y, x[:1], y[:1], k=1).predictions.tolist() == [0]


@pytest.mark.parametrize("weights", ["exp", "uniform", "inverse"])
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_weights_against_the_definition(metric: str, weights: str) -> None:
    rng = np.random.default_rng(0)
    bank, queries = rng.normal(size=(60, 3)), rng.normal(size=(40, 3))
    labels = rng.integers(0, 4, 60)
    options: dict[str, Any] = {"k": 9, "temperature": 0.3, "metric": metric, "weights": weights}
    expected = definition.knn_predictions(bank, labels, queries, **options)
    probe = KNNAccuracy(**options, storage="float64")
    probe.update(torch.tensor(bank), torch.tensor(labels), split="train")
    probe.update(torch.tensor(queries), torch.tensor(expected), split="test")
    assert float(probe.compute()["score"]) == 1.0


def test_labels_that_are_masked_or_unknown() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]])
    metric = KNNAccuracy(k=1, num_classes=5)
    metric.update(x, torch.tensor([0, 1, -1]), split="train")
    metric.update(x, torch.tensor([0, -5, 9]), split="test")
    result = metric.compute()
    assert [int(result[n]) for n in ("n_train", "n_test")] == [2, 2]
    assert float(result["score"]) == 0.5
    metric = KNNAccuracy(k=1, num_classes=5)
    metric.update(x[:2], torch.tensor([5, 1]), split="train")
    metric.update(x[:2], torch.tensor([5, 1]), split="test")
    assert [float(value) for value in metric.compute().values()] == [0.5, 1, 2]
    probe = knn_accuracy(x, torch.tensor([0, 1, -1]), x, torch.tensor([0, -5, 9]), k=1)
    assert (probe.score, probe.predictions.tolist()) == (0.5, [0, 1, 0])


def test_rows_that_are_not_finite() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [torch.nan, 1.0], [torch.inf, 1.0]])
    metric = KNNAccuracy(k=4)
    metric.update(x, torch.tensor([0, 1, 1, 1]), split="train")
    metric.update(x, torch.tensor([0, 1, 0, 0]), split="test")
    result = metric.compute()
    assert [int(result[n]) for n in ("n_train", "n_test")] == [2, 4]
    assert float(result["score"]) == 0.5


def test_a_zero_vector_is_as_near_to_everything() -> None:
    x = torch.tensor([[0.0, 0.0], [-1.0, 0.0]])
    probe = knn_accuracy(x, torch.tensor([0, 1]), torch.tensor([[1.0, 0.0]]), torch.tensor([0]), 1)
    assert probe.predictions.tolist() == [0]


def test_leaving_one_out_leaves_duplicates_in() -> None:
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    metric = KNNAccuracy(k=1, leave_one_out=True)
    metric.update(x, torch.tensor([0, 0, 1]), split="train", sample_id=torch.tensor([4, 5, 6]))
    result = metric.compute()
    assert int(result["n_test"]) == 3
    assert float(result["score"]) == pytest.approx(2 / 3)
    alone = KNNAccuracy(k=1, leave_one_out=True)
    alone.update(x[:1], torch.tensor([0]), split="train", sample_id=torch.tensor([4]))
    assert float(alone.compute()["score"]) == 0.0


def test_a_ring_keeps_the_latest() -> None:
    metric = KNNAccuracy(k=1, capacity=2, overflow="ring")
    x = torch.eye(3)
    metric.update(x, torch.tensor([0, 1, 2]), split="train")
    metric.update(x, torch.tensor([0, 1, 2]), split="test")
    result = metric.compute()
    assert int(result["n_train"]) == 2
    assert float(result["score"]) == pytest.approx(2 / 3)


def test_capacity_and_bytes() -> None:
    metric = KNNAccuracy(capacity=3, storage="float16")
    metric.update(torch.zeros(2, 8), torch.zeros(2, dtype=torch.int64), split="train")
    assert metric.memory_bytes() == 2 * (2 * 8 + 8 + 8) + 8 * 8
    with pytest.raises(ValueError, match="expected at most capacity=3 rows, got 4 rows"):
        metric.update(torch.zeros(2, 8), torch.zeros(2, dtype=torch.int64), split="train")


def test_nothing_to_vote() -> None:
    with pytest.raises(ValueError, match="train_x: expected at least 1"):
        knn_accuracy(torch.zeros(0, 2), torch.zeros(0).long(), torch.zeros(1, 2), torch.zeros(1))
