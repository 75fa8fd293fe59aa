"""Metrics beside `torch.compile`: kernels compile once, classes stay out of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torchmetrics import Metric

from dynmetrics import Accuracy, MetricSuite, TemporalAccuracy
from dynmetrics.control.success import episode_outcomes
from dynmetrics.temporal.accuracy_counts import checked_options, label_counts
from dynmetrics.temporal.inputs import Classification

STEPS = 20

# Dynamo looks at the gradients of whatever is alive where a graph ends.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")


def compilations(
    function: Callable[..., Any], inputs: Callable[[int], tuple[Any, ...]], **options: Any
) -> int:
    """How many graphs `function` needs for steps whose batches differ in size."""
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(function, backend=counter, **options)
    for step in range(STEPS):
        compiled(*inputs(step))
    return int(counter.frame_count)


def scores(step: int) -> tuple[Tensor, Tensor]:
    shape = (2 + step % 5, 10 + step % 3)
    return torch.randn(*shape, 7), torch.zeros(shape, dtype=torch.int64)


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_the_kernel_of_accuracy(average: str) -> None:
    options = checked_options(None, (1, 5), average, "drop", "lowest_index")

    def kernel(preds: Tensor, target: Tensor) -> Any:
        return label_counts(Classification(preds, target), options)

    assert compilations(kernel, scores, fullgraph=True) <= 2


def test_the_kernel_of_success() -> None:
    def episodes(step: int) -> tuple[Any, ...]:
        return torch.ones(3 + step % 5, 4), torch.full((3 + step % 5,), 4), "any"

    assert compilations(episode_outcomes, episodes, fullgraph=True) <= 2


class Step(nn.Module):
    """A step that holds a metric and calls it in the middle."""

    def __init__(self, metric: Any, call: str) -> None:
        super().__init__()
        self.layer = nn.Linear(7, 7)
        self.metric = metric
        self.call = call

    def forward(self, preds: Tensor, target: Tensor) -> Tensor:
        preds = self.layer(preds)
        getattr(self.metric, self.call)(preds=preds, target=target)
        return preds.sum()


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (TemporalAccuracy, "update"),
        (TemporalAccuracy, "__call__"),
        (lambda: MetricSuite([TemporalAccuracy(), Accuracy()]), "update"),
    ],
    ids=["metric", "metric forward", "suite"],
)
def test_a_compiled_step_with_a_metric_in_it(make: Any, call: str) -> None:
    step = Step(make(), call)
    alone = make()
    for i in range(STEPS):
        torch.manual_seed(i)
        preds, target = scores(i)
        with torch.no_grad():
            alone.update(preds=step.layer(preds), target=target)

    def inputs(i: int) -> tuple[Tensor, Tensor]:
        torch.manual_seed(i)
        return scores(i)

    # Before the metric and after it, for the first size of a batch and for any.
    assert compilations(step, inputs) <= 4
    for ours, expected in zip(
        step.metric.compute().values(), alone.compute().values(), strict=True
    ):
        torch.testing.assert_close(ours, expected)


class TheirCount(Metric):
    """Plain torchmetrics: the count of updates is part of every graph."""

    full_state_update = False
    n: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("n", torch.zeros(()), "sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.n = self.n + (preds.argmax(-1) == target).sum()

    def compute(self) -> Tensor:
        return self.n


@pytest.mark.skipif(
    not hasattr(torch._dynamo.config, "recompile_limit"), reason="torch before 2.7 does otherwise"
)
def test_plain_torchmetrics_compiles_until_the_limit() -> None:
    step = Step(TheirCount(), "update")
    assert compilations(step, scores) >= torch._dynamo.config.recompile_limit
