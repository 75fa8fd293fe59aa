"""StepsToSuccess under all laws, the golden cases, and where others go wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from dynmetrics.control import (
    ActionSmoothness,
    GoalProgress,
    StepsToSuccess,
    SuccessRate,
    first_success,
)
from dynmetrics.control.steps import first_mark
from dynmetrics.core import StreamingMetric
from tests.contract import Batch, MetricContract, assert_same, fed
from tests.golden_cases import GOLDEN, ROUTES, Case, feed, words_as_floats, world_cases
from tests.reference import control as definition

CASES = world_cases("first_success")
NOTES = {
    raw["case"]: words_as_floats(json.loads(raw["note"]))
    for raw in json.loads((GOLDEN / "world" / "first_success.json").read_text())
}
SURVIVAL = next(case for case in world_cases("policy_comparison") if "steps" in case.inputs)

every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_route = pytest.mark.parametrize("route", ROUTES)
# Without episodes most routes have nothing to update with; the value must be right all the same.
may_be_empty = pytest.mark.filterwarnings("ignore:.*before any update")


class TestEpisodes(MetricContract):
    depends_on_n: ClassVar[set[str]] = {"low", "high"}
    options: ClassVar[dict[str, Any]] = {"max_steps": 7, "confidence": 0.9}

    def make(self) -> StreamingMetric:
        return StepsToSuccess(**self.options)

    def batches(self, seed: int = 0) -> list[Batch]:
        """T differs between batches, so that episodes are censored at different steps."""
        rng = np.random.default_rng(seed)
        return [
            {"success": torch.tensor(rng.random((n, t)) < 0.2)}
            for n, t in ((5, 4), (1, 8), (0, 3), (9, 6))
        ]

    def reference(self, batches: list[Batch]) -> Any:
        episodes = [definition.cut(row) for batch in batches for row in batch["success"]]
        return definition.steps_to_success(episodes, **self.options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"success": torch.tensor([[False]])}
        one, other = StepsToSuccess(max_steps=8), StepsToSuccess(max_steps=9)
        later = StepsToSuccess(max_steps=8, includes_initial_state=False)
        return [(one, other, first), (one, later, first)]

    def bad_inputs(self) -> list[Batch]:
        success = torch.ones(2, 3) > 0
        return [
            {"success": success[0]},
            {"success": success[:, :0]},
            {"success": success.tolist()},
            {"success": success * 0.5},
            {"success": torch.full((1, 2), torch.nan)},
            {"success": torch.ones(1, 9)},
            {"success": success, "task": torch.tensor([0, 0])},
            {"success": success, "lengths": torch.tensor([1])},
            {"success": success, "lengths": torch.tensor([0.5, 1])},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: StepsToSuccess(max_steps=0),
            lambda: StepsToSuccess(max_steps=3, average="macro"),
            lambda: StepsToSuccess(max_steps=3, num_tasks=-1),
            lambda: StepsToSuccess(max_steps=3, confidence=0),
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return first_mark, [torch.rand(5, 4) < 0.3]


class TestPaddedTasksAfterActions(TestEpisodes):
    depends_on_n: ClassVar[set[str]] = {"low", "high", "task_low", "task_high"}
    options: ClassVar[dict[str, Any]] = {
        "max_steps": 8,
        "includes_initial_state": False,
        "num_tasks": 4,
        "average": "macro",
        "confidence": 0.8,
    }

    def batches(self, seed: int = 0) -> list[Batch]:
        """Task 3 has no episode; some episodes have no step."""
        rng = np.random.default_rng(seed)
        return [
            {
                "success": torch.tensor(rng.random((n, t)) < 0.25),
                "lengths": torch.tensor(rng.integers(0, t + 1, n)),
                "task": torch.tensor(rng.integers(0, 3, n)),
            }
            for n, t in ((6, 4), (1, 8), (0, 3), (9, 6))
        ]

    def reference(self, batches: list[Batch]) -> Any:
        return definition.steps_to_success(*episodes_of(batches), **self.options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {
            "success": torch.tensor([[False]]),
            "lengths": torch.tensor([1]),
            "task": torch.tensor([0]),
        }
        make = partial(StepsToSuccess, max_steps=8, num_tasks=3)
        return [(make(), make(average="macro"), first)]

    def bad_inputs(self) -> list[Batch]:
        return [{"success": torch.ones(2, 3)}, {"success": torch.ones(1, 9)}]


def episodes_of(batches: list[Batch]) -> tuple[list[list[float]], list[int]]:
    """The valid flags of every episode, and its task."""
    episodes = [
        definition.cut(row, length)
        for batch in batches
        for row, length in zip(batch["success"], batch["lengths"], strict=True)
    ]
    return episodes, [t for batch in batches for t in batch["task"].tolist()]


def test_tasks_pooled() -> None:
    batches = TestPaddedTasksAfterActions().batches()
    options: dict[str, Any] = {"max_steps": 8, "num_tasks": 4}
    metric = fed(StepsToSuccess(**options), batches)
    assert_same(metric.compute(), definition.steps_to_success(*episodes_of(batches), **options), 0)


# ---------------------------------------------------------------------------- golden values


def success_of(case: Case) -> Tensor:
    return torch.tensor(case.inputs["success"]).reshape(case.inputs["shape"])


@every_case
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32], ids=str)
def test_golden_function_and_reference(case: Case, dtype: torch.dtype) -> None:
    success, expected = success_of(case).to(dtype), case.expected["recommended_default"]
    step = first_success(success)
    assert step.dtype is torch.int64
    assert step.tolist() == expected
    assert [definition.first_success(row) for row in success.tolist()] == expected


@every_case
@every_route
@may_be_empty
def test_golden_metric(case: Case, route: str) -> None:
    success, note = success_of(case), NOTES[case.name]
    cut = min(1, len(success))
    batches = [(part,) for part in success.split([cut, len(success) - cut])]
    make = partial(StepsToSuccess, max_steps=max(1, success.shape[1] - 1))
    result = feed(make, batches, route).compute()
    steps = [step for step in case.expected["recommended_default"] if step >= 0]
    assert int(result["n"]) == len(success)
    assert int(result["already_successful"]) == steps.count(0)
    case.check(result["median"], np.median(steps) if steps else np.nan)
    for name, key in (
        ("reached", "reached_rate"),
        ("mean", "mean_steps_over_successes"),
        ("restricted_mean", "mean_steps_failures_counted_as_T"),
    ):
        np.testing.assert_allclose(float(result[name]), note[key], rtol=1e-9)


@every_route
@pytest.mark.parametrize("initial", [True, False])
def test_golden_survival(route: str, initial: bool) -> None:
    """Step s is entry s of an episode whose first entry is the state after the reset."""
    steps, limit = SURVIVAL.inputs["steps"], SURVIVAL.inputs["limit"]
    success = torch.zeros(len(steps), limit + initial, dtype=torch.bool)
    for row, (step, succeeded) in enumerate(zip(steps, SURVIVAL.inputs["succeeded"], strict=True)):
        if succeeded:
            success[row, step - 1 + initial] = True
    make = partial(StepsToSuccess, max_steps=limit, includes_initial_state=initial)
    result = feed(make, [(part,) for part in success.split([4, 11])], route).compute()
    references = SURVIVAL.expected["references"]
    survival = result["survival"]
    assert survival.shape == (limit + 1,)
    times = references["statsmodels Kaplan-Meier times"]
    SURVIVAL.check(survival[times], references["survival (not yet succeeded)"])
    SURVIVAL.check(1 - survival[times], references["success by step = 1 - survival"])
    assert float(survival[0]) == 1
    assert int(result["already_successful"]) == 0


# ---------------------------------------------------------------------------- traps


def test_survival_of_episodes_that_end_early() -> None:
    """By hand: successes at 1 and 3, one episode last seen at step 1, one at step 3."""
    success = torch.tensor(
        [
            [0, 1, 0, 0],
            [0, 0, 1, 1],
            [0, 0, 0, 1],
            [0, 0, 0, 0],
        ]
    )
    metric = StepsToSuccess(max_steps=5)
    metric.update(success, lengths=torch.tensor([4, 2, 4, 4]))
    result = metric.compute()
    expected = {
        "mean": 2.0,
        "median": 2.0,
        "reached": 0.5,
        "restricted_mean": (1 + 2 + 3 + 4) / 4,
        # Of four at risk one succeeds; then one is no longer watched, and of two one succeeds.
        "survival": [1, 0.75, 0.75, 0.375, 0.375, 0.375],
        "n": 4,
        "already_successful": 0,
    }
    assert_same(result, expected, 1e-12)


def test_restricted_mean_is_the_area_under_survival() -> None:
    """Without censoring before the limit, in either convention of the first entry."""
    rng = np.random.default_rng(0)
    success = torch.tensor(rng.random((50, 10)) < 0.1)
    for initial in (True, False):
        metric = StepsToSuccess(max_steps=10, includes_initial_state=initial)
        metric.update(success)
        result = metric.compute()
        assert float(result["survival"][:10].sum()) == pytest.approx(
            float(result["restricted_mean"])
        )


def test_a_policy_that_only_solves_easy_episodes_is_not_faster() -> None:
    easy_only = torch.tensor([[0, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
    both = torch.tensor([[0, 1, 0, 0, 0], [0, 0, 0, 1, 0]])
    results = [
        fed(StepsToSuccess(max_steps=4), [{"success": s}]).compute() for s in (easy_only, both)
    ]
    assert [float(result["mean"]) for result in results] == [1, 2]
    assert [float(result["restricted_mean"]) for result in results] == [3, 2]


def test_goal_reached_at_the_reset_is_counted_apart() -> None:
    """A policy that does nothing succeeds where the goal is already reached."""
    success = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 1]])
    metric = StepsToSuccess(max_steps=3)
    metric.update(success)
    result = metric.compute()
    assert (float(result["reached"]), int(result["already_successful"])) == (1.0, 2)
    assert float(result["survival"][0]) == pytest.approx(1 / 3)
    later = StepsToSuccess(max_steps=3, includes_initial_state=False)
    later.update(success)
    assert int(later.compute()["already_successful"]) == 0
    assert later.compute()["survival"].tolist() == pytest.approx([1, 1 / 3, 1 / 3, 0])


def test_steps_after_the_end_are_padding() -> None:
    """Done at index 1: of three flags the third does not count, in any metric of success."""
    success, lengths = torch.tensor([[False, False, True]]), torch.tensor([2])
    metric = StepsToSuccess(max_steps=2)
    metric.update(success, lengths=lengths)
    result = metric.compute()
    assert (float(result["reached"]), float(result["restricted_mean"])) == (0, 2)
    for mode in ("any", "final"):
        rate = SuccessRate(mode=mode)
        rate.update(success, lengths=lengths)
        assert float(rate.compute()["rate"]) == 0


def test_the_first_episodes_to_finish_favour_short_ones() -> None:
    """Environment A fails after 1 step, B succeeds after 10: A finishes ten times as often."""
    metric = SuccessRate(num_tasks=2, average="macro")
    metric.update(torch.zeros(10, dtype=torch.bool), task=torch.zeros(10, dtype=torch.int64))
    metric.update(torch.tensor([True]), task=torch.tensor([1]))
    assert float(metric.compute()["rate"]) == 0.5
    quota = SuccessRate()
    quota.update(torch.tensor([False, False, True, True]))
    assert float(quota.compute()["rate"]) == 0.5


def test_success_at_any_step_and_at_the_last_differ() -> None:
    flags = torch.tensor([[0, 1, 0]])
    rates = {}
    for mode in ("any", "final"):
        metric = SuccessRate(mode=mode)
        metric.update(flags)
        rates[mode] = float(metric.compute()["rate"])
    assert rates == {"any": 1.0, "final": 0.0}
    assert first_success(flags).tolist() == [1]


def test_median_of_an_even_number_of_steps() -> None:
    success = torch.eye(6, dtype=torch.bool)[[0, 1, 4, 5]]
    metric = StepsToSuccess(max_steps=5)
    metric.update(success)
    assert float(metric.compute()["median"]) == 2.5
    metric.update(success[-1:])
    assert float(metric.compute()["median"]) == 4


def test_tasks_out_of_range_and_impossible_lengths() -> None:
    metric = StepsToSuccess(max_steps=3, num_tasks=2)
    metric.update(
        torch.tensor([[0, 1], [0, 0], [1, 1]]),
        lengths=torch.tensor([2, 2, 3]),
        task=torch.tensor([-1, 1, 0]),
    )
    with pytest.warns(UserWarning, match="StepsToSuccess") as caught:
        result = metric.compute()
    assert len(caught) == 2
    assert (int(result["n"]), result["task_n"].tolist()) == (2, [0, 1])
    assert (float(result["mean"]), float(result["reached"])) == (1, 0.5)
    assert torch.isnan(result["task_mean"]).all()


def test_first_success_refuses_what_is_not_success() -> None:
    for wrong in (torch.tensor([[0.5]]), torch.tensor([1]), torch.ones(2, 0), [[True]]):
        with pytest.raises(ValueError, match="success: expected"):
            first_success(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("junk", ["no", 0, 1, None])
def test_switches_are_true_or_false(junk: Any) -> None:
    makers: list[tuple[str, Callable[[], StreamingMetric]]] = [
        (
            "includes_initial_state",
            lambda: StepsToSuccess(max_steps=3, includes_initial_state=junk),
        ),
        ("clip", lambda: GoalProgress(clip=junk)),
        ("best", lambda: GoalProgress(best=junk)),
        ("squared", lambda: ActionSmoothness(squared=junk)),
    ]
    for option, make in makers:
        with pytest.raises(ValueError, match=f"^{option}: expected True or False, got"):
            make()


@pytest.mark.parametrize("metric", [SuccessRate(), StepsToSuccess(max_steps=3)])
def test_success_on_another_device(metric: StreamingMetric) -> None:
    with pytest.raises(ValueError, match=r"^success: expected .* cpu"):
        metric.update(torch.empty(2, 3, dtype=torch.bool, device="meta"))


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_changes_whose_squares_leave_float32(scale: float) -> None:
    """Changes of 3 and 4 along two axes are of length 5."""
    actions = scale * torch.tensor([[[0.0, 0.0], [3.0, 4.0]]])
    metric = ActionSmoothness()
    metric.update(actions)
    assert float(metric.compute()["smoothness"]) == pytest.approx(5 * scale, rel=1e-6)
