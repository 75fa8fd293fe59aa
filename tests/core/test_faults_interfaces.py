"""Metrics inside collections, wrappers, modules and other code that knows torchmetrics."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from matplotlib import pyplot as plt
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torchmetrics import Metric, MetricCollection, SumMetric
from torchmetrics.wrappers import (
    BootStrapper,
    ClasswiseWrapper,
    MetricTracker,
    MinMaxMetric,
    MultioutputWrapper,
    MultitaskWrapper,
    Running,
)

from dynmetrics import Accuracy, MetricSuite, SuccessRate, TemporalAccuracy
from tests.contract import assert_same
from tests.core.toys import Extremes, Mean, Rows, Spread
from tests.ranks import run_ranks

LOGITS = torch.tensor([[[2.0, 0.0, 1.0], [0.0, 1.0, 2.0]], [[0.0, 3.0, 1.0], [1.0, 0.0, 0.5]]])
LABELS = torch.tensor([[0, 1], [1, -1]])


def one(value: float) -> Tensor:
    return torch.tensor([value])


# ---------------------------------------------------------------- collections


def test_a_collection_with_affixes_and_filtered_inputs() -> None:
    members: dict[str, Any] = {
        "micro": TemporalAccuracy(),
        "macro": TemporalAccuracy(average="macro"),
    }
    collection = MetricCollection(
        {**members, "pooled": Accuracy(), "sum": SumMetric()}, prefix="v_"
    )
    collection.update(preds=LOGITS, target=LABELS, mask=LABELS == 0, value=one(3.0))
    result = collection.compute()
    assert set(result) == {"v_pooled", "v_sum"} | {
        f"v_{name}_{entry}" for name in members for entry in members[name].axes
    }
    assert all(isinstance(value, Tensor) for value in result.values())
    assert {k: float(result[k]) for k in ("v_micro_overall", "v_pooled", "v_sum")} == {
        "v_micro_overall": 1.0, "v_pooled": 1.0, "v_sum": 3.0,
    }  # fmt: skip


def test_a_mistyped_mask_is_dropped_by_a_collection_and_refused_by_a_suite() -> None:
    inputs = {"preds": LOGITS, "target": LABELS, "msk": LABELS == 0}
    collection = MetricCollection({"accuracy": TemporalAccuracy()})
    collection.update(**inputs)
    assert int(collection.compute()["valid"].sum()) == 3
    with pytest.raises(ValueError, match="'msk', which no metric takes"):
        MetricSuite({"accuracy": TemporalAccuracy()}).update(**inputs)


def test_a_metric_inside_another_member_is_not_updated_twice() -> None:
    curve = TemporalAccuracy()
    with pytest.raises(ValueError, match="states are never shared"):
        MetricSuite({"curve": curve, "overall": curve["overall"]})
    suite = MetricSuite({"curve": curve, "overall": TemporalAccuracy()["overall"]})
    suite.update(preds=LOGITS, target=LABELS)
    assert suite.scalars() == {"curve": pytest.approx(2 / 3), "overall": pytest.approx(2 / 3)}
    suite.reset()
    assert curve.update_count == 0


# ---------------------------------------------------------------- metric arithmetic


def test_metric_arithmetic() -> None:
    one_more, total = Mean(), SumMetric()
    formula = 1 + one_more * 2 - total
    formula.update(value=one(3.0))
    formula.update(value=one(5.0))
    assert float(formula.compute()) == 1 + 2 * 4.0 - 8.0
    assert float(formula(value=one(1.0))) == 1 + 2 * 1.0 - 1.0
    formula.reset()
    assert one_more.update_count == 0


def test_one_entry_of_a_result_is_a_metric() -> None:
    overall = TemporalAccuracy()["overall"]
    assert isinstance(overall, Metric)
    overall.update(LOGITS, LABELS)
    assert float(overall.compute()) == pytest.approx(2 / 3)
    parent = nn.ModuleDict({"overall": overall})
    other = nn.ModuleDict({"overall": TemporalAccuracy()["overall"]})
    other.load_state_dict(parent.state_dict())
    assert float(other["overall"].compute()) == pytest.approx(2 / 3)  # type: ignore[operator]


# ---------------------------------------------------------------- wrappers


@pytest.mark.parametrize(
    ("metric", "options"),
    [(Mean(), {}), (Spread()["mean"][0], {"maximize": True})],
    ids=["scalar", "entry"],
)
def test_tracker(metric: Metric, options: dict[str, Any]) -> None:
    tracker = MetricTracker(metric, **options)
    for value in (1.0, 3.0, 2.0):
        tracker.increment()
        tracker.update(torch.tensor([[value]]))
    assert tracker.best_metric(return_step=True) == (3.0, 1)
    assert tracker.compute_all().tolist() == [1.0, 3.0, 2.0]


@pytest.mark.parametrize("call", ["update", "forward"])
def test_running(call: str) -> None:
    scalar, rows = Running(Mean(), window=2), Running(Rows(), window=2)
    for i in range(4):
        getattr(scalar, call)(one(i))
        getattr(rows, call)(torch.full((1, 3), float(i)), torch.tensor([0]))
    assert float(scalar.compute()) == 2.5
    assert rows.compute()["total"].tolist() == [5.0, 5.0, 5.0]
    ragged = Running(TemporalAccuracy(), window=2)
    for steps in (1, 2, 1):
        getattr(ragged, call)(LOGITS[:, :steps], LABELS[:, :steps])
    assert ragged.compute()["valid"].tolist() == [4, 1]


@pytest.mark.parametrize("make", [Accuracy, lambda: TemporalAccuracy()["overall"]])
def test_bootstrap(make: Callable[[], Metric]) -> None:
    torch.manual_seed(0)
    bootstrap = BootStrapper(make(), num_bootstraps=200)
    right = torch.eye(2)[torch.arange(100) % 2].unsqueeze(1)
    for _ in range(4):
        bootstrap.update(right, (torch.arange(100) // 2 % 2).unsqueeze(1))
    result = bootstrap.compute()
    assert float(result["mean"]) == pytest.approx(0.5, abs=0.01)
    assert float(result["std"]) == pytest.approx((0.25 / 400) ** 0.5, rel=0.2)


@pytest.mark.parametrize("call", ["update", "forward"])
def test_min_max(call: str) -> None:
    wrapped = MinMaxMetric(Mean())
    for value in (1.0, 5.0, 0.0):
        getattr(wrapped, call)(one(value))
        result = {k: float(v) for k, v in wrapped.compute().items()}
    highest = {"update": 3.0, "forward": 5.0}[call]
    assert (result["max"], result["min"]) == (highest, {"update": 1.0, "forward": 0.0}[call])


def test_multioutput_classwise_and_multitask() -> None:
    several = MultioutputWrapper(Mean(), 2)
    several.update(torch.arange(6.0).view(3, 2))
    assert several.compute().tolist() == [2.0, 3.0]
    classes = ClasswiseWrapper(Accuracy(average="none"), labels=["a", "b", "c"])
    batch = {k: float(v) for k, v in classes(LOGITS[:1], LABELS[:1]).items()}
    assert (batch["accuracy_a"], batch["accuracy_b"]) == (1.0, 0.0)
    assert {"accuracy_a", "accuracy_b", "accuracy_c"} == set(classes.compute())
    tasks = MultitaskWrapper({"time": TemporalAccuracy(), "pooled": Accuracy()})
    tasks.update({"time": LOGITS, "pooled": LOGITS}, {"time": LABELS, "pooled": LABELS})
    result = tasks.compute()
    assert float(result["time"]["overall"]) == float(result["pooled"]) == pytest.approx(2 / 3)


def _wrapped(rank: int) -> list[float]:
    running, best, overall = Running(Mean(), 2), MinMaxMetric(Mean()), TemporalAccuracy()["overall"]
    for i in range(3):
        running.update(one(i + 10 * rank))
    best.update(one(rank))
    overall.update(torch.eye(3)[None], torch.tensor([[0, 1, 1 + rank]]))
    return [float(v) for v in (running.compute(), best.compute()["raw"], overall.compute())]


def test_wrappers_on_2_ranks() -> None:
    assert run_ranks(_wrapped, 2) == [[6.5, 0.5, 5 / 6]] * 2


@pytest.mark.parametrize(
    ("wrap", "error"),
    [
        (lambda m: MinMaxMetric(m), "should be a float or scalar tensor"),
        (lambda m: BootStrapper(m), "got dict"),
        (lambda m: m + 1, "must be Tensor, not dict"),
    ],
)
def test_wrappers_of_numbers_refuse_a_result_of_several_entries(wrap: Any, error: str) -> None:
    wrapped = wrap(TemporalAccuracy())
    wrapped.update(LOGITS.repeat(20, 1, 1), LABELS.repeat(20, 1))
    with pytest.raises((RuntimeError, TypeError), match=error):
        wrapped.compute()


# ---------------------------------------------------------------- plots


def test_plots() -> None:
    curve, classes = TemporalAccuracy(), Accuracy(average="none")
    classes.update(LOGITS, LABELS)
    results = [curve(LOGITS, LABELS), curve(LOGITS[:1], LABELS[:1])]
    pooled = MetricCollection({"a": Accuracy(), "b": Mean()})
    pooled.update(preds=LOGITS, target=LABELS, value=one(1.0))
    drawn = [curve.plot(), curve.plot(results), classes.plot(), *pooled.plot()]
    for figure, axes in drawn:
        assert axes.lines
        plt.close(figure)
    # Of several entries only the headline: counts and rates would share an axis.
    (line,) = drawn[1][1].lines
    assert [float(y) for y in line.get_ydata()] == pytest.approx([2 / 3, 0.5])
    figure, axes = plt.subplots()
    assert curve.plot(ax=axes)[1] is axes
    plt.close(figure)


# ---------------------------------------------------------------- modules


class Model(nn.Module):
    """Holds metrics in every way a module can hold something."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.mean = Mean()
        self.listed = nn.ModuleList([Extremes(), Spread()])
        self.named = nn.ModuleDict({"rate": SuccessRate(), "rows": Rows()})
        self.in_a_list = [Mean()]

    def forward(self, value: Tensor) -> Tensor:
        result: Tensor = self.layer(value)
        return result

    def update(self, value: Tensor) -> Model:
        for metric in (self.mean, *self.listed):
            metric.update(value)
        self.named["rate"].update(value[:, 0] > 0)  # type: ignore[operator]
        self.named["rows"].update(value, value[:, 0].long())  # type: ignore[operator]
        return self

    def results(self) -> dict[str, Any]:
        metrics = {n: m for n, m in self.named_modules() if isinstance(m, Metric)}
        return {name: metric.compute() for name, metric in metrics.items()}


VALUES = torch.tensor([[0.5, 1.0], [-1.0, 2.0], [0.25, -4.0]])


def test_containers_save_load_copy_and_move() -> None:
    model = Model().update(VALUES)
    expected = copy.deepcopy(model).update(VALUES).results()
    assert set(expected) == {"mean", "listed.0", "listed.1", "named.rate", "named.rows"}
    loaded = Model()
    loaded.load_state_dict(model.state_dict())
    for other in (loaded, copy.deepcopy(model), model.to(torch.bfloat16)):
        assert_same(other.update(VALUES).results(), expected, 1e-9)
    # A Python list hides a metric from its module, as it hides any module.
    assert loaded.to("meta").in_a_list[0].device.type == "cpu"
    assert {m.device.type for m in loaded.modules() if isinstance(m, Metric)} == {"meta"}


def test_modules_made_on_meta_are_empty_metrics_elsewhere() -> None:
    with torch.device("meta"):
        model = Model()
    # torchmetrics before 1.9 puts every metric on the CPU.
    assert model.mean.total.device == model.mean.device
    model.to_empty(device="cpu")
    assert_same(model.update(VALUES).results(), Model().update(VALUES).results(), 0.0)


def _distributed_data_parallel(rank: int) -> tuple[dict[str, Any], list[str]]:
    model = Model()
    wrapped = DistributedDataParallel(model)
    for step in range(2):
        wrapped(torch.ones(2, 3)).sum().backward()
        model.update(VALUES[rank : rank + 1 + step])
    buffers = [name for name, _ in wrapped.named_buffers()]
    return model.results(), buffers


def test_a_module_in_distributed_data_parallel() -> None:
    expected = Model()
    for rank in range(2):
        for step in range(2):
            expected.update(VALUES[rank : rank + 1 + step])
    for results, buffers in run_ranks(_distributed_data_parallel, 2):
        assert_same(results, expected.results(), 1e-9)
        assert not buffers


def test_metrics_are_hashable_and_not_iterable() -> None:
    metric, other = Mean(), Mean()
    assert {metric: 1, other: 2}[metric] == 1
    with pytest.raises(TypeError, match="not iterable"):
        list(metric)  # type: ignore[call-overload]
