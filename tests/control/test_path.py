"""SPL and SoftSPL under all laws, the golden cases, and where others go wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from dynmetrics.control import SPL, SoftSPL, path_length, spl
from dynmetrics.control.path import path_efficiency, travelled
from dynmetrics.core import StreamingMetric
from tests.contract import Batch, MetricContract, assert_same, fed
from tests.golden_cases import ROUTES, Case, feed, world_cases
from tests.reference import control as definition

CASES = world_cases("spl")
every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_route = pytest.mark.parametrize("route", ROUTES)
both_classes = pytest.mark.parametrize("metric_class", [SPL, SoftSPL])


class TestEpisodes(MetricContract):
    depends_on_n: ClassVar[set[str]] = {"low", "high"}

    def make(self) -> StreamingMetric:
        return SPL(confidence=0.9)

    def batches(self, seed: int = 0) -> list[Batch]:
        """T differs between batches; some paths are broken, some episodes start at the goal."""
        rng = np.random.default_rng(seed)
        batches = []
        for n, t in ((5, 4), (1, 1), (0, 3), (8, 3)):
            positions = rng.normal(size=(n, t, 2))
            positions[3:5, -1] = np.nan
            goal = rng.normal(size=(n, 2))
            goal[1:3] = positions[1:3, 0]
            positions[2:3] = positions[2:3, :1]
            success = rng.random(n) < 0.6
            success[1:3] = True
            batches.append(
                {
                    "success": torch.tensor(success),
                    "positions": torch.tensor(positions),
                    "goal": torch.tensor(goal),
                }
            )
        return batches

    def reference(self, batches: list[Batch]) -> Any:
        values = [definition.spl(*episode) for episode in episodes_of(batches)]
        return definition.episode_mean("spl", values, confidence=0.9)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {
            "success": torch.tensor([True]),
            "positions": torch.zeros(1, 2, 2),
            "goal": torch.ones(1, 2),
        }
        return [(SPL(), SPL(confidence=0.95), first)]

    def bad_inputs(self) -> list[Batch]:
        good = {
            "success": torch.tensor([True, False]),
            "positions": torch.zeros(2, 3, 2),
            "goal": torch.zeros(2, 2),
        }
        return [
            {**good, "success": torch.tensor([0.5, 1])},
            {**good, "success": torch.tensor([True])},
            {**good, "success": torch.ones(2, 3) > 0},
            {**good, "positions": torch.zeros(2, 3)},
            {**good, "positions": torch.zeros(2, 0, 2)},
            {**good, "positions": torch.zeros(2, 3, 3)},
            {**good, "positions": None},
            {**good, "goal": torch.zeros(2)},
            {**good, "goal": None},
            {**good, "goal": torch.zeros(1, 2)},
            {**good, "lengths": torch.tensor([1])},
            {**good, "shortest": torch.tensor([1.0])},
            {**good, "shortest": [1.0, 1.0]},
            {**good, "task": torch.tensor([0, 0])},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [lambda: SPL(average="macro"), lambda: SoftSPL(confidence=2)]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return path_efficiency, [torch.tensor([0.0, 0.0, 2.0]), torch.tensor([0.0, 1.0, 4.0])]


class TestSoftOnPaddedTasks(TestEpisodes):
    depends_on_n: ClassVar[set[str]] = {"low", "high", "task_low", "task_high"}
    options: ClassVar[dict[str, Any]] = {"num_tasks": 4, "average": "macro", "confidence": 0.8}

    def make(self) -> StreamingMetric:
        return SoftSPL(**self.options)

    def batches(self, seed: int = 0) -> list[Batch]:
        """Task 3 has no episode; some episodes have no step, some goals no way to them."""
        rng = np.random.default_rng(seed)
        batches = super().batches(seed)
        for batch in batches:
            n, t = batch["positions"].shape[:2]
            shortest = rng.uniform(1, 4, n)
            shortest[::5] = rng.choice([np.inf, np.nan, -1.0])
            shortest[1::4] = 0
            batch["shortest"] = torch.tensor(shortest)
            batch["lengths"] = torch.tensor(rng.integers(0, t + 1, n))
            batch["task"] = torch.tensor(rng.integers(0, 3, n))
        return batches

    def reference(self, batches: list[Batch]) -> Any:
        values = [definition.soft_spl(*episode) for episode in episodes_of(batches)]
        tasks = [t for batch in batches for t in batch["task"].tolist()]
        return definition.episode_mean("spl", values, tasks, **self.options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {
            "positions": torch.zeros(1, 2, 2),
            "goal": torch.ones(1, 2),
            "task": torch.tensor([0]),
            "lengths": torch.tensor([1]),
            "shortest": torch.tensor([1.0]),
        }
        return [(SoftSPL(num_tasks=3), SoftSPL(num_tasks=3, average="macro"), first)]

    def bad_inputs(self) -> list[Batch]:
        return [{**bad, "task": torch.tensor([0, 0])} for bad in super().bad_inputs()[:-1]]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return travelled, [torch.rand(3, 4, 2), torch.tensor([4, 1, 0])]


def episodes_of(batches: list[Batch]) -> list[tuple[Any, ...]]:
    """Success, valid positions, goal and shortest way of every episode."""
    episodes = []
    for batch in batches:
        for row in range(len(batch["positions"])):
            lengths, shortest = batch.get("lengths"), batch.get("shortest")
            episodes.append(
                (
                    bool(batch["success"][row]) if "success" in batch else None,
                    definition.cut(
                        batch["positions"][row].detach(), None if lengths is None else lengths[row]
                    ),
                    batch["goal"][row].tolist(),
                    None if shortest is None else float(shortest[row]),
                )
            )
    return episodes


@both_classes
@pytest.mark.parametrize("average", ["micro", "macro"])
def test_both_by_task(metric_class: type[StreamingMetric], average: str) -> None:
    batches = TestSoftOnPaddedTasks().batches()
    tasks = [t for batch in batches for t in batch["task"].tolist()]
    by_definition = definition.spl if metric_class is SPL else definition.soft_spl
    values = [by_definition(*episode) for episode in episodes_of(batches)]
    options: dict[str, Any] = {"num_tasks": 4, "average": average}
    metric = fed(metric_class(**options), batches)
    assert_same(metric.compute(), definition.episode_mean("spl", values, tasks, **options), 1e-9)


# ---------------------------------------------------------------------------- golden values


def inputs_of(case: Case) -> dict[str, Tensor]:
    inputs = {name: torch.tensor(value) for name, value in case.inputs.items()}
    return {**inputs, "goal": inputs["goal"].float()}


def in_pieces(case: Case) -> list[tuple[Any, ...]]:
    """Batches of the positional arguments of `update`, the first of a single episode."""
    inputs = inputs_of(case)
    n, steps = inputs["positions"].shape[:2]
    straight = torch.linalg.vector_norm(inputs["goal"] - inputs["positions"][:, 0], dim=1)
    whole = (
        inputs["success"],
        inputs["positions"],
        inputs["goal"],
        inputs.get("lengths", torch.full((n,), steps)),
        inputs.get("shortest", straight),
    )
    return [tuple(field[:1] for field in whole), tuple(field[1:] for field in whole)]


@every_case
def test_golden_function(case: Case) -> None:
    inputs, expected = inputs_of(case), case.expected["recommended_default"]
    case.check(spl(**inputs), expected)
    assert isinstance(spl(**inputs), float)
    doubles = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    case.check(spl(**doubles), expected)


@every_case
@every_route
def test_golden_metric(case: Case, route: str) -> None:
    result = feed(SPL, in_pieces(case), route).compute()
    case.check(result["spl"], case.expected["recommended_default"])
    assert (int(result["n"]), int(result["n_excluded"])) == (len(case.inputs["success"]), 0)


@every_case
def test_golden_episodes(case: Case) -> None:
    """Every episode as a task of its own, against the values of each."""
    inputs, references = inputs_of(case), case.expected["references"]
    keys = {"per-episode", "per-episode (AllenAct rule)"} & set(references)
    task = torch.arange(len(inputs["success"]))
    for metric, names in ((SPL, keys), (SoftSPL, {"soft_spl per episode"} & set(references))):
        for average in ("micro", "macro"):
            ours = metric(num_tasks=len(task), average=average)
            ours.update(**inputs, task=task)
            for name in names:
                case.check(ours.compute()["task_spl"], references[name])
                case.check(ours.compute()["spl"], np.mean(references[name]))
    if "path_length" in references:
        case.check(path_length(inputs["positions"]), references["path_length"])


@every_case
def test_golden_reference(case: Case) -> None:
    batch = inputs_of(case)
    values = [definition.spl(*episode) for episode in episodes_of([batch])]
    case.check(definition.mean_of(values), case.expected["recommended_default"])
    soft = case.expected["references"].get("soft_spl per episode")
    if soft is not None:
        case.check([definition.soft_spl(*episode) for episode in episodes_of([batch])], soft)


# ---------------------------------------------------------------------------- traps

STAY, LEAVE = [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0], [2.0, 1.0], [1.0, 1.0]]


@both_classes
def test_start_at_the_goal(metric_class: type[StreamingMetric]) -> None:
    """0/0 elsewhere: staying is perfect, a trip and back is not."""
    for positions, expected in ((STAY, 1.0), (LEAVE, 0.0)):
        metric = metric_class()
        metric.update(torch.tensor([True]), torch.tensor([positions]), torch.tensor([[1.0, 1.0]]))
        result = metric.compute()
        assert (float(result["spl"]), int(result["n"]), int(result["n_excluded"])) == (
            expected,
            1,
            0,
        )


@both_classes
@pytest.mark.parametrize("none", [torch.inf, torch.nan, -1.0])
@pytest.mark.parametrize("success", [True, False])
def test_a_goal_without_a_way_is_left_out_and_counted(
    metric_class: type[StreamingMetric], none: float, success: bool
) -> None:
    path = torch.tensor([[[0.0, 0.0], [1.0, 0.0]]]).repeat(2, 1, 1)
    metric = metric_class()
    metric.update(
        torch.tensor([success, True]), path, path[:, -1], shortest=torch.tensor([none, 1.0])
    )
    result = metric.compute()
    assert (float(result["spl"]), int(result["n"]), int(result["n_excluded"])) == (1.0, 1, 1)


def test_straight_line_through_a_wall() -> None:
    """A wall between start and goal: straight 2, geodesic 4, travelled 4."""
    path = torch.tensor([[[0.0, 0.0], [0.0, 1.0], [2.0, 1.0], [2.0, 0.0]]])
    success, goal = torch.tensor([True]), torch.tensor([[2.0, 0.0]])
    assert spl(success, path, goal) == 0.5
    assert spl(success, path, goal, shortest=torch.tensor([4.0])) == 1.0
    assert path_length(path).tolist() == [4.0]


def test_a_failure_counts_zero_whatever_its_path() -> None:
    broken = torch.tensor([[[torch.nan, 0.0], [torch.inf, 0.0]]])
    for metric in (SPL(), SoftSPL()):
        metric.update(torch.tensor([False]), broken, torch.ones(1, 2))
        assert float(metric.compute()["spl"]) == 0


def test_a_broken_path_is_left_out_unless_known_to_have_failed() -> None:
    positions = torch.tensor([[[0.0, 0.0], [torch.nan, 0.0], [1.0, 0.0]], [[0.0, 0.0]] * 3])
    goal = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    hard, soft = SPL(), SoftSPL()
    hard.update(torch.tensor([True, False]), positions, goal)
    soft.update(positions=positions, goal=goal)
    for metric in (hard, soft):
        result = metric.compute()
        assert (float(result["spl"]), int(result["n"]), int(result["n_excluded"])) == (0.0, 1, 1)


@both_classes
def test_a_broken_path_from_the_goal_is_not_known(metric_class: type[StreamingMetric]) -> None:
    positions = torch.tensor([[[1.0, 1.0], [torch.nan, 1.0], [1.0, 1.0]]])
    metric = metric_class()
    metric.update(torch.tensor([True]), positions, torch.tensor([[1.0, 1.0]]))
    assert torch.isnan(metric.compute()["spl"])


def test_padding_is_no_return_trip() -> None:
    positions = torch.tensor([[[0.0], [1.0], [0.0]]])
    options = {"success": torch.tensor([True]), "goal": torch.tensor([[1.0]])}
    assert spl(positions=positions, **options) == 0.5
    assert spl(positions=positions, lengths=torch.tensor([2]), **options) == 1.0
    soft = SoftSPL()
    soft.update(positions=positions, goal=options["goal"], lengths=torch.tensor([2]))
    assert float(soft.compute()["spl"]) == 1.0


def test_soft_spl_needs_no_success() -> None:
    case = next(case for case in CASES if case.name == "3d walk")
    inputs = inputs_of(case)
    metric = SoftSPL()
    metric.update(positions=inputs["positions"], goal=inputs["goal"])
    metric.update(None, inputs["positions"], inputs["goal"])
    expected = np.mean(case.expected["references"]["soft_spl per episode"])
    case.check(metric.compute()["spl"], expected)


def test_path_length_of_one_position_and_of_whole_numbers() -> None:
    assert path_length(torch.zeros(2, 1, 3)).tolist() == [0.0, 0.0]
    assert path_length(torch.tensor([[[0, 0], [3, 4]]])).tolist() == [5.0]
    with pytest.raises(ValueError, match="positions: expected"):
        path_length(torch.zeros(2, 3))


def test_strays() -> None:
    metric = SPL(num_tasks=1)
    path = torch.tensor([[[0.0], [1.0]]]).repeat(2, 1, 1)
    metric.update(
        torch.tensor([True, True]),
        path,
        path[:, -1],
        lengths=torch.tensor([2, 3]),
        task=torch.tensor([1, 0]),
    )
    with pytest.warns(UserWarning, match="SPL") as caught:
        result = metric.compute()
    assert len(caught) == 2
    assert (int(result["n"]), result["task_n"].tolist()) == (1, [0])
