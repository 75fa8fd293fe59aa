"""ActionSmoothness under all laws, the golden cases, and its options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from dynmetrics.control import ActionSmoothness, smoothness
from dynmetrics.control.action_smoothness import change_sums
from dynmetrics.core import StreamingMetric
from tests.contract import Batch, MetricContract, assert_same, fed
from tests.golden_cases import ROUTES, Case, feed, world_cases
from tests.reference import control as definition

every_case = pytest.mark.parametrize("case", world_cases("smoothness"), ids=str)
every_route = pytest.mark.parametrize("route", ROUTES)


class TestEpisodes(MetricContract):
    depends_on_n: ClassVar[set[str]] = {"low", "high"}

    def make(self) -> StreamingMetric:
        return ActionSmoothness(confidence=0.9)

    def batches(self, seed: int = 0) -> list[Batch]:
        """T differs between batches; one batch is too short for a change."""
        rng = np.random.default_rng(seed)
        return [
            {"actions": torch.tensor(rng.normal(size=(n, t, 2)))}
            for n, t in ((4, 5), (1, 1), (0, 3), (6, 2))
        ]

    def reference(self, batches: list[Batch]) -> Any:
        episodes = [definition.cut(row) for batch in batches for row in batch["actions"].detach()]
        return definition.smoothness(episodes, confidence=0.9)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"actions": torch.ones(1, 4, 2)}
        return [
            (ActionSmoothness(), ActionSmoothness(order=2), first),
            (ActionSmoothness(), ActionSmoothness(squared=True), first),
            (ActionSmoothness(), ActionSmoothness(weight="step"), first),
        ]

    def bad_inputs(self) -> list[Batch]:
        actions = torch.ones(2, 3, 1)
        return [
            {"actions": actions[0]},
            {"actions": actions[:, :0]},
            {"actions": actions > 0},
            {"actions": actions.tolist()},
            {"actions": actions, "task": torch.tensor([0, 0])},
            {"actions": actions, "lengths": torch.tensor([1])},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: ActionSmoothness(order=0),
            lambda: ActionSmoothness(weight="steps"),
            lambda: ActionSmoothness(weight="step", confidence=0.9),
            lambda: ActionSmoothness(average="macro"),
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return change_sums, [torch.rand(3, 4, 2), torch.tensor([4, 1, 0]), 2, True]


class TestStepsOfPaddedTasks(TestEpisodes):
    options: ClassVar[dict[str, Any]] = {
        "order": 2,
        "squared": True,
        "weight": "step",
        "num_tasks": 4,
        "average": "macro",
    }

    def make(self) -> StreamingMetric:
        return ActionSmoothness(**self.options)

    def batches(self, seed: int = 0) -> list[Batch]:
        """Task 3 has no episode; some episodes are too short."""
        rng = np.random.default_rng(seed)
        return [
            {
                "actions": torch.tensor(rng.uniform(-0.5, 0.5, (n, t, 2))),
                "lengths": torch.tensor(rng.integers(0, t + 1, n)),
                "task": torch.tensor(rng.integers(0, 3, n)),
            }
            for n, t in ((7, 5), (1, 3), (0, 3), (8, 4))
        ]

    def reference(self, batches: list[Batch]) -> Any:
        return definition.smoothness(*episodes_of(batches), **self.options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        return []

    def bad_inputs(self) -> list[Batch]:
        return [{"actions": torch.ones(2, 3, 1)}]


def episodes_of(batches: list[Batch]) -> tuple[list[list[list[float]]], list[int]]:
    """The valid actions of every episode, and its task."""
    episodes = [
        definition.cut(row.detach(), length)
        for batch in batches
        for row, length in zip(batch["actions"], batch["lengths"], strict=True)
    ]
    return episodes, [t for batch in batches for t in batch["task"].tolist()]


@pytest.mark.parametrize("average", ["micro", "macro"])
@pytest.mark.parametrize("weight", ["episode", "step"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_every_combination(order: int, weight: str, average: str) -> None:
    batches = TestStepsOfPaddedTasks().batches()
    for squared in (False, True):
        options = {
            "order": order,
            "squared": squared,
            "weight": weight,
            "num_tasks": 4,
            "average": average,
        }
        metric = fed(ActionSmoothness(**options), batches)  # type: ignore[arg-type]
        expected = definition.smoothness(*episodes_of(batches), **options)  # type: ignore[arg-type]
        assert_same(metric.compute(), expected, 1e-9)


# ---------------------------------------------------------------------------- golden values


@every_case
def test_golden_function_and_reference(case: Case) -> None:
    actions = torch.tensor(case.inputs["actions"])
    expected = case.expected["recommended_default"]
    case.check(smoothness(actions), expected)
    case.check(smoothness(actions.double()), expected)
    sizes = [definition.change_sizes(episode) for episode in case.inputs["actions"]]
    case.check([definition.mean_of(s) for s in sizes], expected)


@every_case
@every_route
def test_golden_metric(case: Case, route: str) -> None:
    actions = torch.tensor(case.inputs["actions"])
    batches = [(part,) for part in actions.split([1, len(actions) - 1])]
    result = feed(ActionSmoothness, batches, route).compute()
    expected = np.array(case.expected["recommended_default"])
    valid = expected[~np.isnan(expected)]
    case.check(result["smoothness"], valid.mean() if len(valid) else np.nan)
    assert (int(result["n"]), int(result["n_excluded"])) == (len(valid), np.isnan(expected).sum())


@every_case
def test_golden_metric_by_task(case: Case) -> None:
    actions = torch.tensor(case.inputs["actions"])
    for weight in ("episode", "step"):
        metric = ActionSmoothness(num_tasks=len(actions), average="macro", weight=weight)
        metric.update(actions, task=torch.arange(len(actions)))
        case.check(metric.compute()["task_smoothness"], case.expected["recommended_default"])


# ---------------------------------------------------------------------------- traps


def test_episodes_weigh_alike_or_by_their_steps() -> None:
    actions = torch.tensor([[[0.0], [4.0], [9.0]], [[0.0], [1.0], [2.0]]])
    lengths = torch.tensor([2, 3])
    values = {}
    for weight in ("episode", "step"):
        metric = ActionSmoothness(weight=weight)
        metric.update(actions, lengths=lengths)
        values[weight] = float(metric.compute()["smoothness"])
    assert values == {"episode": 2.5, "step": 2.0}


def test_padding_is_no_action() -> None:
    """A tail of zeros would add a jump back, a tail of NaN would spoil the mean."""
    for tail in (0.0, torch.nan):
        actions = torch.tensor([[[3.0], [3.0], [tail], [tail]]])
        metric = ActionSmoothness()
        metric.update(actions, lengths=torch.tensor([2]))
        assert float(metric.compute()["smoothness"]) == 0


@pytest.mark.parametrize("weight", ["episode", "step"])
@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_broken_episode_spoils_no_other(weight: str, broken: float) -> None:
    actions = torch.tensor([[[0.0], [broken]], [[0.0], [2.0]]])
    metric = ActionSmoothness(weight=weight, num_tasks=2)
    metric.update(actions, task=torch.tensor([0, 1]))
    result = metric.compute()
    expected = {
        "smoothness": 2.0,
        "n": 1,
        "n_excluded": 1,
        "task_smoothness": [np.nan, 2.0],
        "task_n": [0, 1],
        "task_n_excluded": [1, 0],
    }
    assert_same(result, expected, 0)


def test_a_straight_ramp_has_no_changes_of_changes() -> None:
    actions = torch.arange(5.0).reshape(1, 5, 1)
    values = []
    for order in (1, 2, 3, 5):
        metric = ActionSmoothness(order=order)
        metric.update(actions)
        values.append(float(metric.compute()["smoothness"]))
    assert values[:3] == [1, 0, 0]
    assert np.isnan(values[3])
