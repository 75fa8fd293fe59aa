"""MetricSuite: routing, results, atomicity."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric, SumMetric
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.wrappers import ClasswiseWrapper

from dynmetrics import Accuracy, MetricSuite, SuccessRate, TemporalAccuracy
from tests.core.toys import Extremes, Mean, Rows

LOGITS = torch.tensor([[[2.0, 0.0, 1.0], [0.0, 1.0, 2.0]], [[0.0, 3.0, 1.0], [1.0, 0.0, 0.5]]])
LABELS = torch.tensor([[0, 1], [1, -1]])


def test_result_names() -> None:
    suite = MetricSuite(
        {"accuracy": TemporalAccuracy(top_k=(1, 2)), "pooled": Accuracy()},
        prefix="val_",
        postfix="_ema",
    )
    suite.update(preds=LOGITS, target=LABELS)
    results = suite.compute()
    assert list(results) == [
        "val_accuracy_ema", "val_accuracy_overall_top2_ema", "val_accuracy_top1_ema",
        "val_accuracy_top2_ema", "val_accuracy_valid_ema", "val_accuracy_nonfinite_ema",
        "val_pooled_ema",
    ]  # fmt: skip
    assert suite.scalars(results) == {
        "val_accuracy_ema": 2 / 3, "val_accuracy_overall_top2_ema": 1.0, "val_pooled_ema": 2 / 3
    }  # fmt: skip
    assert suite.higher_is_better == {"val_accuracy_ema": True, "val_pooled_ema": True}


def test_scalars_of_curves_are_numbered() -> None:
    suite = MetricSuite({"a": TemporalAccuracy(), "c": Accuracy(average="none")}, prefix="v_")
    suite.update(preds=LOGITS, target=LABELS)
    scalars = suite.scalars(curves=True)
    assert {k: scalars[k] for k in ("v_a_accuracy_t00", "v_a_accuracy_t01", "v_a_valid_t01")} == {
        "v_a_accuracy_t00": 1.0, "v_a_accuracy_t01": 0.0, "v_a_valid_t01": 1.0
    }  # fmt: skip
    assert scalars["v_c_c01"] == 0.5
    assert all(type(value) is float for value in scalars.values())
    assert set(suite.scalars()) == {"v_a"}


def test_network_output_chooses_an_entry() -> None:
    outputs = {"classifier": LOGITS, "aux": -LOGITS}
    suite = MetricSuite(
        {
            "main": TemporalAccuracy(network_output="classifier"),
            "aux": TemporalAccuracy(network_output="aux"),
        }
    )
    suite.update(preds=outputs, target=LABELS)
    scalars = suite.scalars()
    assert scalars == {"main": pytest.approx(2 / 3), "aux": 0.0}
    missing = MetricSuite({"it": TemporalAccuracy(network_output="IT")})
    with pytest.raises(ValueError, match=r"'IT'.*\['aux', 'classifier'\]"):
        missing.update(preds=outputs, target=LABELS)
    unnamed = MetricSuite({"it": TemporalAccuracy()})
    with pytest.raises(ValueError, match=r"network_output.*\['aux', 'classifier'\]"):
        unnamed.update(preds=outputs, target=LABELS)


def test_network_output_of_a_torchmetrics_member() -> None:
    mean = MeanMetric()
    mean.network_output = "loss"  # type: ignore[assignment]
    suite = MetricSuite({"mean": mean})
    suite.update(value={"loss": torch.tensor(3.0)})
    assert suite.scalars() == {"mean": 3.0}


def test_an_input_that_no_metric_takes_is_an_error() -> None:
    suite = MetricSuite({"accuracy": TemporalAccuracy(), "mean": MeanMetric()})
    value = torch.ones(1)
    with pytest.raises(ValueError, match=r"'msk', which no metric takes"):
        suite.update(preds=LOGITS, target=LABELS, value=value, msk=LABELS >= 0)
    with pytest.raises(ValueError, match=r"inputs \['target'\] for 'accuracy'"):
        suite.update(preds=LOGITS, value=value)
    suite.update(preds=LOGITS, target=LABELS, value=value, mask=LABELS == 0)
    assert suite.scalars() == {"accuracy": 1.0, "mean": 1.0}


def test_torchmetrics_members_get_what_they_name() -> None:
    classwise = ClasswiseWrapper(MulticlassAccuracy(3, average=None))
    suite = MetricSuite({"plain": MulticlassAccuracy(3), "each": classwise, "ours": Accuracy()})
    suite.update(preds=LOGITS[:, 0], target=LABELS[:, 0], mask=torch.tensor([True, True]))
    assert suite.scalars() == {
        "plain": 1.0, "each_multiclassaccuracy_0": 1.0, "each_multiclassaccuracy_1": 1.0,
        "each_multiclassaccuracy_2": 0.0, "ours": 1.0,
    }  # fmt: skip


class Poison(Metric):
    """Changes its states in place and then fails on negative values."""

    full_state_update = False
    total: Tensor
    seen: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), "sum")
        self.add_state("seen", [], "cat")

    def update(self, value: Tensor) -> None:
        self.total += value.sum()
        self.seen.append(value)
        if (value < 0).any():
            raise RuntimeError("negative")

    def compute(self) -> Tensor:
        return self.total + len(self.seen)


@pytest.mark.parametrize("call", ["update", "forward"])
def test_an_error_in_one_member_leaves_all_as_they_were(call: str) -> None:
    suite = MetricSuite({"ours": Mean(), "sum": SumMetric(), "poison": Poison()})
    suite.update(value=torch.tensor([1.0, 2.0]))
    before = suite.scalars()
    with pytest.raises(RuntimeError, match="negative"):
        getattr(suite, call)(value=torch.tensor([-1.0]))
    assert suite.scalars() == before == {"ours": 1.5, "sum": 3.0, "poison": 4.0}
    assert [metric.update_count for _, metric in suite.items()] == [1, 1, 1]
    assert all(metric._to_sync for _, metric in suite.items())
    suite.update(value=torch.tensor([3.0]))
    assert suite.scalars() == {"ours": 2.0, "sum": 6.0, "poison": 8.0}


def test_forward_gives_the_batch_and_accumulates() -> None:
    suite = MetricSuite({"ours": Mean(), "theirs": MeanMetric()}, prefix="t_")
    first = suite(value=torch.tensor([1.0, 3.0]))
    second = suite(value=torch.tensor([5.0]))
    assert {k: float(v) for k, v in first.items()} == {"t_ours": 2.0, "t_theirs": 2.0}
    assert {k: float(v) for k, v in second.items()} == {"t_ours": 5.0, "t_theirs": 5.0}
    assert suite.scalars() == {"t_ours": 3.0, "t_theirs": 3.0}


def test_states_are_never_shared() -> None:
    suite = MetricSuite({"one": Mean(scale=1.0), "two": Mean(scale=2.0)})
    suite.update(value=torch.zeros(2))
    suite.update(value=torch.ones(2))
    assert suite.scalars() == {"one": 0.5, "two": 1.0}
    metric = Mean()
    with pytest.raises(ValueError, match="different objects"):
        MetricSuite({"one": metric, "two": metric})


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"a/b": Mean()}, "names"),
        ({"a.b": Mean()}, "names"),
        ({"": Mean()}, "names"),
        ({"items": Mean()}, "names"),
        ({3: Mean()}, "names"),
        ({"a": 3}, "a metric"),
        ([Mean(), Mean()], "mapping where classes repeat"),
        (Mean(), "mapping or a sequence"),
        ({"a": Extremes(), "a_bottom": Mean()}, r"\['a_bottom'\] twice"),
    ],
)
def test_bad_members_are_refused(metrics: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MetricSuite(metrics)


def test_a_sequence_is_named_by_classes() -> None:
    suite = MetricSuite([Mean(), Extremes()])
    assert list(suite) == ["Mean", "Extremes"]
    assert len(suite) == 2
    assert "Mean" in suite
    assert isinstance(suite["Mean"], Mean)


def test_clone_changes_names_and_shares_nothing() -> None:
    suite = MetricSuite({"mean": Mean()}, prefix="train_")
    suite.update(value=torch.ones(1))
    other = suite.clone(prefix="val_")
    other.update(value=torch.tensor([3.0]))
    assert suite.scalars() == {"train_mean": 1.0}
    assert other.scalars() == {"val_mean": 2.0}
    suite.reset()
    assert other.scalars() == {"val_mean": 2.0}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_continue(copied: Any) -> None:
    suite = MetricSuite({"mean": Mean(), "sum": SumMetric()})
    suite.update(value=torch.ones(1))
    other = copied(suite)
    other.update(value=torch.tensor([3.0]))
    assert other.scalars() == {"mean": 2.0, "sum": 4.0}
    assert suite.scalars() == {"mean": 1.0, "sum": 1.0}


def test_a_refused_checkpoint_changes_no_member() -> None:
    suite = MetricSuite({"mean": Mean(), "rate": SuccessRate()})
    suite.update(value=torch.ones(1), success=torch.tensor([True]))
    saved = suite.state_dict()
    fresh = MetricSuite({"mean": Mean(), "rate": SuccessRate(confidence=0.9)})
    with pytest.raises(RuntimeError, match="another configuration"):
        fresh.load_state_dict(saved)
    assert fresh["mean"].update_count == 0
    right = MetricSuite({"mean": Mean(), "rate": SuccessRate()})
    right.load_state_dict(saved)
    assert right.scalars() == suite.scalars()


def test_a_suite_is_part_of_a_module() -> None:
    module = nn.Module()
    module.suite = MetricSuite({"mean": Mean(), "rows": Rows()})
    module.suite.update(
        value=torch.ones(1), features=torch.ones(2, 3), labels=torch.zeros(2, dtype=torch.int64)
    )
    assert {"suite.metrics.mean.total", "suite.metrics.rows.features"} <= set(module.state_dict())
    module.to(torch.bfloat16)
    assert module.suite["mean"].total.dtype is torch.float64
    module.to("meta")
    assert module.suite["mean"].total.device.type == "meta"
