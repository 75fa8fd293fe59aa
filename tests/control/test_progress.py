"""GoalProgress under all laws, the golden cases, and where others go wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from dynmetrics.control import GoalProgress, progress
from dynmetrics.control.goal_progress import episode_progress
from dynmetrics.core import StreamingMetric
from tests.contract import Batch, MetricContract, assert_same, fed
from tests.golden_cases import ROUTES, Case, feed, world_cases
from tests.reference import control as definition

CASES = world_cases("progress")
every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_route = pytest.mark.parametrize("route", ROUTES)
BOUNDS = {"low", "high", "task_low", "task_high"}


class TestEpisodes(MetricContract):
    depends_on_n: ClassVar[set[str]] = BOUNDS

    def make(self) -> StreamingMetric:
        return GoalProgress(clip=True, confidence=0.8)

    def batches(self, seed: int = 0) -> list[Batch]:
        """T differs between batches; some episodes start at the goal, some end nowhere."""
        rng = np.random.default_rng(seed)
        batches = []
        for n, t in ((5, 4), (1, 1), (0, 3), (8, 2)):
            distances = rng.uniform(0.5, 2.0, (n, t))
            distances[2:3, 0] = 0
            distances[4:5, -1] = np.nan
            batches.append({"distances": torch.tensor(distances)})
        return batches

    def reference(self, batches: list[Batch]) -> Any:
        rows = [definition.cut(row) for batch in batches for row in batch["distances"].detach()]
        values = [definition.progress(row, clip=True) for row in rows]
        return definition.episode_mean("progress", values, confidence=0.8)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"distances": torch.tensor([[2.0, 1.0]])}
        return [
            (GoalProgress(), GoalProgress(best=True), first),
            (GoalProgress(), GoalProgress(clip=True), first),
        ]

    def bad_inputs(self) -> list[Batch]:
        distances = torch.ones(2, 3)
        return [
            {"distances": distances[0]},
            {"distances": distances[:, :0]},
            {"distances": distances > 0},
            {"distances": distances.tolist()},
            {"distances": distances, "task": torch.tensor([0, 0])},
            {"distances": distances, "lengths": torch.tensor([1])},
            {"distances": distances, "lengths": torch.tensor([1.5, 1.0])},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: GoalProgress(average="macro"),
            lambda: GoalProgress(average="none"),
            lambda: GoalProgress(num_tasks=0),
            lambda: GoalProgress(confidence=1.0),
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return episode_progress, [torch.rand(3, 4), torch.tensor([4, 1, 0]), True]


class TestBestOfPaddedTasks(TestEpisodes):
    average: ClassVar[str] = "macro"

    def make(self) -> StreamingMetric:
        return GoalProgress(best=True, num_tasks=4, average=self.average, confidence=0.9)

    def batches(self, seed: int = 0) -> list[Batch]:
        """Task 3 has no episode; some episodes have no step."""
        rng = np.random.default_rng(seed)
        return [
            {
                "distances": torch.tensor(rng.uniform(0.5, 2.0, (n, t))),
                "lengths": torch.tensor(rng.integers(0, t + 1, n)),
                "task": torch.tensor(rng.integers(0, 3, n)),
            }
            for n, t in ((7, 4), (1, 6), (0, 2), (9, 3))
        ]

    def reference(self, batches: list[Batch]) -> Any:
        values = [
            definition.progress(definition.cut(row, length), best=True)
            for batch in batches
            for row, length in zip(batch["distances"].detach(), batch["lengths"], strict=True)
        ]
        tasks = [t for batch in batches for t in batch["task"].tolist()]
        return definition.episode_mean(
            "progress", values, tasks, num_tasks=4, average=self.average, confidence=0.9
        )

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {
            "distances": torch.tensor([[2.0, 1.0]]),
            "lengths": torch.tensor([2]),
            "task": torch.tensor([0]),
        }
        one, other = GoalProgress(num_tasks=3), GoalProgress(num_tasks=3, average="macro")
        return [(one, other, first)]

    def bad_inputs(self) -> list[Batch]:
        distances = torch.ones(2, 3)
        return [
            {"distances": distances},
            {"distances": distances, "task": torch.tensor([0])},
            {"distances": distances, "task": torch.tensor([0.5, 1])},
        ]


def test_tasks_pooled() -> None:
    case = TestBestOfPaddedTasks()
    rows = [batch["task"] for batch in case.batches()]
    metric = GoalProgress(best=True, num_tasks=4, confidence=0.9)
    result = fed(metric, case.batches()).compute()
    macro = case.reference(case.batches())
    assert_same(_tasks(result), _tasks(macro), 1e-9)
    case.average = "micro"  # type: ignore[misc]
    assert_same(result, case.reference(case.batches()), 1e-9)
    assert int(result["n"]) + int(result["n_excluded"]) == sum(map(len, rows))


def _tasks(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if "task" in name}


# ---------------------------------------------------------------------------- golden values


@every_case
def test_golden_function_and_reference(case: Case) -> None:
    distances = torch.tensor(case.inputs["distances"])
    expected = case.expected["recommended_default"]
    case.check(progress(distances), expected)
    case.check(progress(distances.double()), expected)
    case.check([definition.progress(row) for row in distances.tolist()], expected)


@every_case
@every_route
def test_golden_metric(case: Case, route: str) -> None:
    distances = torch.tensor(case.inputs["distances"])
    batches = [(part,) for part in distances.split([1, len(distances) - 1])]
    result = feed(GoalProgress, batches, route).compute()
    expected = np.array(case.expected["recommended_default"])
    valid = expected[~np.isnan(expected)]
    case.check(result["progress"], valid.mean() if len(valid) else np.nan)
    assert (int(result["n"]), int(result["n_excluded"])) == (len(valid), np.isnan(expected).sum())


@every_case
def test_golden_metric_by_task(case: Case) -> None:
    distances = torch.tensor(case.inputs["distances"])
    task = torch.arange(len(distances))
    expected = case.expected["recommended_default"]
    for average in ("micro", "macro"):
        metric = GoalProgress(num_tasks=len(task), average=average)
        metric.update(distances, task=task)
        case.check(metric.compute()["task_progress"], expected)


# ---------------------------------------------------------------------------- traps


def test_padding_is_no_step() -> None:
    """Episodes end with their length, whatever lies behind."""
    distances = torch.tensor([[4.0, 2.0, 0.0], [4.0, 3.0, torch.nan]])
    for best in (False, True):
        metric = GoalProgress(best=best)
        metric.update(distances, lengths=torch.tensor([2, 2]))
        result = metric.compute()
        assert (float(result["progress"]), int(result["n"])) == (0.375, 2)


def test_best_step_and_clip() -> None:
    distances = torch.tensor([[4.0, 1.0, 8.0]])
    values = {}
    for best in (False, True):
        for clip in (False, True):
            metric = GoalProgress(best=best, clip=clip)
            metric.update(distances)
            values[best, clip] = float(metric.compute()["progress"])
    assert values == {
        (False, False): -1,
        (False, True): 0,
        (True, False): 0.75,
        (True, True): 0.75,
    }


def test_a_tiny_start_explodes_and_clip_tames_it() -> None:
    distances = torch.tensor([[1e-4, 2e-4]], dtype=torch.float64)
    assert float(progress(distances)) == pytest.approx(-1)
    metric = GoalProgress(clip=True)
    metric.update(distances)
    assert float(metric.compute()["progress"]) == 0


def test_infinite_distances_are_left_out_and_counted() -> None:
    metric = GoalProgress(confidence=0.95)
    metric.update(torch.tensor([[1.0, torch.inf], [2.0, 1.0]]))
    metric.merge_state(GoalProgress(confidence=0.95))
    result = metric.compute()
    assert (float(result["progress"]), int(result["n"]), int(result["n_excluded"])) == (0.5, 1, 1)
    assert (float(result["low"]), float(result["high"])) == (-np.inf, np.inf)


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_strays_are_warned_of(average: str) -> None:
    """A task out of range counts in the whole only; a length beyond T leaves the episode out."""
    metric = GoalProgress(num_tasks=2, average=average)
    metric.update(
        torch.tensor([[2.0, 1.0], [2.0, 2.0], [2.0, 0.0]]),
        lengths=torch.tensor([2, 2, 3]),
        task=torch.tensor([0, 5, 1]),
    )
    with pytest.warns(UserWarning, match="GoalProgress") as caught:
        result = metric.compute()
    messages = [str(warning.message) for warning in caught]
    assert any("1 episodes left out: lengths exceed T" in message for message in messages)
    assert any("1 episodes have a task not below 2" in message for message in messages)
    expected = {"micro": 0.25, "macro": 0.5}[average]
    assert_same(
        result,
        {
            "progress": expected,
            "n": 2,
            "n_excluded": 0,
            "task_progress": [0.5, np.nan],
            "task_n": [1, 0],
            "task_n_excluded": [0, 0],
        },
        1e-12,
    )


def test_float32_means_far_from_zero() -> None:
    """Deviations are taken from the mean: the interval does not drown in it."""
    rng = np.random.default_rng(0)
    values = 1e6 + rng.normal(size=200)
    metric = GoalProgress(confidence=0.95)
    for part in np.split(values, 10):
        metric.update(torch.tensor(np.stack([np.ones(20), 1 - part], 1)))
    expected = definition.episode_mean("progress", values.tolist(), confidence=0.95)
    assert_same(metric.compute(), expected, 1e-6)


def test_numbers_of_any_type() -> None:
    for dtype in (torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert progress(torch.tensor([[4, 1]], dtype=dtype)).tolist() == [0.75]
    with pytest.raises(ValueError, match="distances: expected"):
        progress(torch.tensor([[True]]))
