"""Known faults of state, memory and precision, each beside what plain torchmetrics does."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torchmetrics import MeanMetric, Metric, MetricCollection, SumMetric

from dynmetrics import Accuracy, SuccessRate, TemporalAccuracy
from tests.contract import assert_same, fed
from tests.core.toys import Mean, Rows, Spread

# ---------------------------------------------------------------- compute groups


class TheirTopK(Metric):
    """Top-k accuracy as plain torchmetrics would have it: a sum and a count."""

    full_state_update = False
    hits: Tensor
    n: Tensor

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k
        self.add_state("hits", torch.zeros(()), "sum")
        self.add_state("n", torch.zeros(()), "sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        guesses = preds.topk(self.k, 1).indices
        self.hits = self.hits + (guesses == target[:, None]).sum()
        self.n = self.n + len(target)

    def compute(self) -> Tensor:
        return self.hits / self.n


# Of four scores the label has the third, then the second highest.
NEVER = {"preds": torch.tensor([[3.0, 2.0, 1.0, 0.0]]), "target": torch.tensor([3])}
SECOND = {"preds": torch.tensor([[3.0, 2.0, 1.0, 0.0]]), "target": torch.tensor([1])}


def test_top_1_and_top_2_after_a_batch_without_hits() -> None:
    theirs = MetricCollection({"one": TheirTopK(1), "two": TheirTopK(2)})
    ours = MetricCollection({"one": Accuracy(), "two": Accuracy(top_k=2)})
    for collection in (theirs, ours):
        for batch in (NEVER, SECOND):
            collection.update(**batch)
    assert {k: float(v) for k, v in ours.compute().items()} == {"one": 0.0, "two": 0.5}
    assert {k: float(v) for k, v in theirs.compute().items()} == {"one": 0.0, "two": 0.0}


OPTIONS: list[dict[str, Any]] = [
    {}, {"top_k": 2}, {"average": "macro"}, {"average": "weighted"}, {"average": "none"},
    {"average": "macro", "absent_classes": "zero"}, {"average": "macro", "top_k": 2},
    {"ties": "pessimistic"}, {"empty_value": 0.5}, {"num_classes": 4}, {"network_output": "it"},
]  # fmt: skip


@pytest.mark.parametrize("kind", [Accuracy, TemporalAccuracy])
def test_every_pair_of_options_in_one_collection(kind: Any) -> None:
    data = [NEVER, SECOND, {"preds": torch.eye(4), "target": torch.tensor([0, 1, 2, 0])}]
    if kind is TemporalAccuracy:
        data = [{k: v[:, None] for k, v in batch.items()} for batch in data]
    alone = [fed(kind(**options), data).compute() for options in OPTIONS]
    for (i, one), (j, other) in itertools.combinations(enumerate(OPTIONS), 2):
        collection = MetricCollection({"one": kind(**one), "other": kind(**other)})
        fed(collection, data)
        members = dict(collection.items())
        assert_same(members["one"].compute(), alone[i], 0.0)
        assert_same(members["other"].compute(), alone[j], 0.0)
        assert len(collection.compute_groups) == 2, (one, other)


def test_the_groups_stay_apart_after_reset() -> None:
    collection = MetricCollection({"one": Accuracy(), "two": Accuracy(top_k=2)})
    collection.update(**NEVER)
    collection.reset()
    collection.update(**SECOND)
    assert {k: float(v) for k, v in collection.compute().items()} == {"one": 0.0, "two": 1.0}


def test_a_result_edited_in_a_group_reaches_no_other_member() -> None:
    collection = MetricCollection({"one": Mean(), "other": Mean()})
    theirs = SumMetric()
    for value in (1.0, 3.0):
        collection.update(torch.tensor([value]))
        theirs.update(torch.tensor([value]))
        assert len(collection.compute_groups) == 1
        for result in (*collection.compute().values(), collection["one"].compute()):
            result.fill_(7.0)
    assert {k: float(v) for k, v in collection.compute().items()} == {"one": 2.0, "other": 2.0}
    theirs.compute().add_(10)
    assert float(theirs.compute()) == 14.0


# ---------------------------------------------------------------- the cost of forward


class Allocated(TorchDispatchMode):
    """Counts operations, and the bytes of what they return."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        self.bytes += result.nbytes if isinstance(result, Tensor) else 0
        return result


class TheirRows(Metric):
    """Kept rows with the `full_state_update` that torchmetrics assumes unless told."""

    features: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("features", [], "cat")

    def update(self, features: Tensor) -> None:
        self.features.append(features)

    def compute(self) -> Tensor:
        return torch.cat(list(self.features)).sum(0)


def _cost_of_forward(metric: Any, batch: tuple[Tensor, ...]) -> tuple[int, int]:
    with Allocated() as allocated:
        metric(*batch)
    return allocated.operations, allocated.bytes


@pytest.mark.parametrize("kind", [Mean, Rows, TemporalAccuracy])
def test_forward_after_a_long_history_costs_the_same(kind: Any) -> None:
    batch: tuple[Tensor, ...] = (torch.ones(4, 100), torch.zeros(4, dtype=torch.int64))
    if kind is TemporalAccuracy:
        batch = (torch.ones(4, 3, 100), batch[1])
    batch = batch[: 1 if kind is Mean else 2]
    metric = kind()
    costs = [_cost_of_forward(metric, batch) for _ in range(200)]
    assert len(set(costs[1:])) == 1


def test_forward_of_torchmetrics_copies_its_history() -> None:
    metric, batch = TheirRows(), (torch.ones(4, 100),)
    first = _cost_of_forward(metric, batch)
    for _ in range(200):
        metric.update(*batch)
    assert _cost_of_forward(metric, batch)[1] > 50 * first[1]


# ---------------------------------------------------------------- graphs and memory


class TheirReducedRows(TheirRows):
    full_state_update = False


def test_forward_under_autograd_keeps_no_graph() -> None:
    features, labels = torch.ones(2, 3, requires_grad=True), torch.zeros(2, dtype=torch.int64)
    ours, theirs = Rows(), TheirReducedRows()
    ours(features * 2, labels)
    theirs(features * 2)
    assert not any(chunk.requires_grad for chunk in ours.features)
    assert_same(ours.clone().compute(), ours.compute(), 0.0)
    assert theirs.features[0].requires_grad
    with pytest.raises(RuntimeError, match="deepcopy"):
        theirs.clone()


@pytest.mark.parametrize("call", ["update", "forward"])
def test_a_buffer_that_is_used_again_leaves_the_rows(call: str) -> None:
    features, labels = torch.ones(2, 3), torch.zeros(2, dtype=torch.int64)
    ours, theirs = Rows(), TheirRows()
    getattr(ours, call)(features, labels)
    theirs.update(features)
    features.zero_()
    labels.fill_(9)
    assert ours.compute()["total"].tolist() == [2.0, 2.0, 2.0]
    assert theirs.compute().tolist() == [0.0, 0.0, 0.0]


def test_reset_frees_the_rows() -> None:
    metric = Rows()
    references = []
    for _ in range(100):
        features = torch.ones(256, 64, dtype=torch.float64)
        metric(features, torch.zeros(256, dtype=torch.int64))
        references.append(weakref.ref(metric.features[-1]))
    assert metric.memory_bytes() == 100 * 256 * (64 * 4 + 8)
    metric.compute()
    metric.reset()
    gc.collect()
    assert not [reference for reference in references if reference() is not None]
    assert metric.memory_bytes() == 0


def test_statistics_do_not_grow() -> None:
    for metric in (Mean(), Spread(), TemporalAccuracy(average="macro")):
        inputs = (torch.zeros(4, 3, 5), torch.zeros(4, dtype=torch.int64))
        batch = inputs if isinstance(metric, TemporalAccuracy) else (inputs[0][0],)
        metric(*batch)
        before = metric.memory_bytes()
        for _ in range(20):
            metric(*batch)
        assert metric.memory_bytes() == before < 1000


@pytest.mark.parametrize("call", ["update", "forward"])
def test_rows_stop_at_their_capacity(call: str) -> None:
    metric = Rows(capacity=5)
    rows, labels = torch.ones(3, 2), torch.zeros(3, dtype=torch.int64)
    metric.update(rows, labels)
    with pytest.raises(ValueError, match=r"features: expected at most capacity=5 rows, got 6"):
        getattr(metric, call)(rows, labels)
    metric.update(rows[:2], labels[:2])
    assert int(metric.compute()["n"]) == 5
    assert metric.update_count == 2


# ---------------------------------------------------------------- precision


def test_a_sum_passes_2_to_24() -> None:
    ours, theirs = Mean(), SumMetric()
    for value in (2.0**24, 1.0, 1.0):
        ours.update(torch.tensor([value]))
        theirs.update(torch.tensor([value]))
    assert float(ours.total) == 2.0**24 + 2
    assert float(theirs.compute()) == 2.0**24


def test_a_parent_in_bfloat16_leaves_counts_and_results() -> None:
    parent = nn.Module()
    parent.ours, parent.theirs = SuccessRate(), MeanMetric()
    parent.to(torch.bfloat16)
    for i in range(600):
        parent.ours.update(torch.tensor([i % 3 == 0]))
        parent.theirs.update(torch.tensor([1.0]))
    result = parent.ours.compute()
    assert int(result["n"]) == 600
    assert float(result["rate"]) == pytest.approx(1 / 3, abs=1e-12)
    assert result["low"].dtype is torch.float64
    assert float(parent.theirs.weight) == 256.0


def test_half_precision_inputs_do_not_drift() -> None:
    value = torch.full((1000,), 0.3, dtype=torch.bfloat16)
    ours, running = Mean(), torch.zeros((), dtype=torch.bfloat16)
    for _ in range(100):
        ours.update(value)
        running = running + value.sum()
    assert float(ours.compute()) == pytest.approx(float(value[0]), abs=1e-12)
    assert abs(float(running) / 1e5 - float(value[0])) > 0.01


# ---------------------------------------------------------------- inference mode


def test_reset_in_inference_mode_and_update_outside() -> None:
    ours, theirs = Mean(), TheirInPlace()
    with torch.inference_mode():
        ours.reset()
        theirs.reset()
    ours.update(torch.ones(2))
    assert float(ours.compute()) == 1.0
    with pytest.raises(RuntimeError, match=r"[Ii]nference tensor"):
        theirs.update(torch.ones(2))


class TheirInPlace(Metric):
    """Adds in place, as most metrics of torchmetrics do."""

    full_state_update = False
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), "sum")

    def update(self, value: Tensor) -> None:
        self.total += value.sum()

    def compute(self) -> Tensor:
        return self.total
