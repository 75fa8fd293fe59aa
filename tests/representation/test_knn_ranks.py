"""A bank that no rank has alone: the smaller split travels, and the result is as in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dynmetrics import MetricSuite
from dynmetrics.representation import KNNAccuracy, RankMe
from tests.contract import Batch, assert_same, quietly
from tests.ranks import run_ranks
from tests.representation.test_knn import TestKNN, TestLeaveOneOut

SIZES = {"bank": (90, 20), "queries": (20, 90), "no bank": (0, 70), "few": (30, 3)}


class TestSharesUnderAllLaws(TestKNN):
    def make(self) -> KNNAccuracy:
        return KNNAccuracy(**self.options, storage="float64", gather_limit=1)


class TestLeaveOneOutOfShares(TestLeaveOneOut):
    def make(self) -> KNNAccuracy:
        options: dict[str, Any] = {"metric": "euclidean", "weights": "inverse", "k": 4}
        return KNNAccuracy(
            leave_one_out=True, average="macro", storage="float64", gather_limit=1, **options
        )


def batches_of(kind: str) -> list[Batch]:
    rng = np.random.default_rng(0)
    batches = []
    for n, split in zip(SIZES[kind], ("train", "test"), strict=True):
        # Whole numbers make ties common: those are settled by the place in the joint bank.
        features = torch.tensor(rng.integers(-2, 3, (n, 3)), dtype=torch.float32)
        target = torch.tensor(rng.integers(0, 4, n))
        batches += [
            {"features": x, "target": y, "split": split}
            for x, y in zip(features.split(7), target.split(7), strict=True)
        ]
    return batches


def metrics() -> dict[str, KNNAccuracy]:
    limit: dict[str, Any] = {"gather_limit": 10}
    return {
        "cosine": KNNAccuracy(k=5, top_k=2, **limit),
        "distance": KNNAccuracy(k=50, metric="euclidean", average="macro", **limit),
        "centred": KNNAccuracy(k=3, center=True, weights="uniform", storage="float16", **limit),
        "ring": KNNAccuracy(k=3, capacity=1000, overflow="ring", metric="dot", **limit),
        "sample": KNNAccuracy(k=3, capacity=25, overflow="reservoir", **limit),
    }


def _compute(rank: int, kind: str, idle: int, world_size: int) -> Any:
    suite = MetricSuite({**metrics(), "rank": RankMe()})
    active = [r for r in range(world_size) if r != idle]
    batches = batches_of(kind)
    # Consecutive shares: the joint bank is then in the order of one process.
    shares = np.array_split(np.arange(len(batches)), len(active))
    if rank in active:
        for i in shares[active.index(rank)]:
            for metric in dict(suite.items()).values():
                known = metric._filter_kwargs(**batches[i])
                if not isinstance(metric, RankMe) or batches[i]["split"] == "train":
                    metric.update(**known)
    before = {n: m.memory_bytes() for n, m in suite.items() if isinstance(m, KNNAccuracy)}
    together = quietly(suite.compute)
    alone = {name: quietly(metric.compute) for name, metric in suite.items()}
    after = {n: m.memory_bytes() for n, m in suite.items() if isinstance(m, KNNAccuracy)}
    assert before == after
    with suite.synchronised():
        inside = {n: m.memory_bytes() for n, m in suite.items() if isinstance(m, KNNAccuracy)}
    assert all(dict(suite.items())[name]._shares is None for name in metrics())  # type: ignore[attr-defined]
    return together, alone, inside


@pytest.mark.parametrize("kind", list(SIZES))
@pytest.mark.parametrize(("world_size", "idle"), [(2, -1), (3, 1)])
@pytest.mark.filterwarnings("ignore:.*the rank is at most")
def test_ranks_equal_one_process(kind: str, world_size: int, idle: int) -> None:
    expected = {}
    for name, metric in metrics().items():
        for batch in batches_of(kind):
            metric.update(**batch)
        expected[name] = quietly(metric.compute)
    for together, alone, _ in run_ranks(_compute, world_size, kind, idle, world_size):
        for name, values in expected.items():
            assert_same(alone[name], values, 1e-12)
            assert_same(together[name], values["score"], 1e-12)


def test_a_large_bank_stays_where_it_is() -> None:
    """Inside the synchronisation a rank holds its share of the bank, and all of the test rows."""
    for kind, (train, test) in (("bank", SIZES["bank"]), ("queries", SIZES["queries"])):
        results = run_ranks(_compute, 2, kind, -1, 2)
        row, whole = 3 * 4 + 8 + 8, 3 * 8
        larger, smaller = max(train, test), min(train, test)
        sizes = [inside["cosine"] - whole - smaller * row for _, _, inside in results]
        assert all(0 <= size < larger * row for size in sizes)
        assert sum(sizes) == larger * row
