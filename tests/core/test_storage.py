"""Where states live and what checkpoints they accept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dynmetrics import MetricSuite
from tests.core.toys import Mean, Rows


def filled() -> Mean:
    metric = Mean()
    metric.update(torch.tensor([1.0, 2.0]))
    return metric


def test_a_metric_can_be_moved_to_meta_and_made_empty() -> None:
    metric = filled()
    metric.to("meta")
    metric.to_empty(device="cpu")
    assert metric.update_count == 0
    metric.update(torch.tensor([4.0]))
    assert float(metric.compute()) == 4.0


@pytest.mark.parametrize("assign", [False, True])
def test_a_metric_without_data_refuses_a_checkpoint(assign: bool) -> None:
    metric = Mean().to("meta")
    with pytest.raises(RuntimeError, match="a metric that holds data"):
        metric.load_state_dict(filled().state_dict(), assign=assign)
    assert metric.update_count == 0


@pytest.mark.parametrize("count", [torch.tensor(-1), torch.tensor([1, 2]), 3, "many"])
def test_an_impossible_update_count_is_refused(count: Any) -> None:
    metric = Mean()
    with pytest.raises(RuntimeError, match="update_count: expected"):
        metric.load_state_dict({**filled().state_dict(), "update_count": count})
    assert metric.update_count == 0


def test_a_foreign_checkpoint_is_refused_even_if_not_strict() -> None:
    state = filled().state_dict()
    del state["n"]
    other = Mean(scale=2.0)
    with pytest.raises(RuntimeError, match="another configuration"):
        other.load_state_dict(state, strict=False)
    Mean().load_state_dict(state, strict=False)


def test_a_parent_moves_its_metrics() -> None:
    parent = nn.ModuleDict({"metric": filled()})
    parent.to("meta").to_empty(device="cpu")
    metric: Any = parent["metric"]
    assert metric.update_count == 0


def test_suites_merge() -> None:
    def suite(*values: float) -> MetricSuite:
        result = MetricSuite({"mean": Mean(), "rows": Rows()})
        features = torch.ones(len(values), 3)
        labels = torch.arange(len(values))
        result.update(value=torch.tensor(values), features=features, labels=labels)
        return result

    one, other = suite(1.0, 2.0), suite(6.0)
    one.merge_state(other)
    assert float(one.compute()["mean"]) == 3.0
    assert float(other.compute()["mean"]) == 6.0
    with pytest.raises(ValueError, match="other: expected a suite of"):
        one.merge_state(MetricSuite({"mean": Mean()}))
    spoilt = MetricSuite({"mean": Mean(), "rows": Rows(power=2.0)})
    with pytest.raises(ValueError, match="merge_state: expected"):
        one.merge_state(spoilt)
    assert float(one.compute()["mean"]) == 3.0


def test_options_by_position_are_part_of_the_identity() -> None:
    class Scaled(Mean):
        def __init__(self, factor: float = 1.0, **kwargs: Any) -> None:
            super().__init__(scale=factor, **kwargs)

    assert Scaled(2.0).configuration == Scaled(factor=2.0).configuration == "Scaled(factor=2.0)"
    with pytest.raises(ValueError, match="merge_state: expected"):
        Scaled(2.0).merge_state(Scaled(3.0))
