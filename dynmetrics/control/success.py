"""How often episodes succeed, and how sure that is."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dynmetrics.control.intervals import INTERVALS, proportion_bounds
from dynmetrics.core.checks import (
    check_choice,
    check_fraction,
    check_positive_int,
    check_tensor,
    describe,
    refuse,
    whole_numbers,
)
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.numerics import ratio

NAN_POLICIES = ("error", "omit", "failure")


class Rate(NamedTuple):
    """A success rate over n episodes with its confidence interval."""

    value: float
    low: float
    high: float
    n: int


class SuccessRate(StreamingMetric):
    r"""Share of successful episodes, with a confidence interval.

    The interval is part of the result: 8 of 16 episodes mean a rate between 28 and 72 percent, and
    two policies whose intervals overlap widely have not been told apart.

    Args:
        confidence: the probability of covering the true rate.
        interval: "wilson" (as torch_world and LeRobot), "wilsoncc" with continuity correction,
            "exact" (Clopper-Pearson), "jeffreys" or "agresti-coull".
        mode: of (N, T) an episode succeeds if its "final" valid step does, or "any" step. Papers
            differ in this more than in anything else.
        num_tasks: also report every task.
        average: "micro" pools episodes; "macro" averages the tasks that have episodes, with the
            interval of Zou and Donner (MOVER).
        nan_policy: an episode whose success is NaN is an "error", is left out ("omit"), or counts
            as "failure".
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `success` (N,) or (N, T), boolean or 0 and 1; `task` (N,), integers from 0 to
    num_tasks - 1; and `lengths` (N,), the valid steps of padded episodes: what lies behind does not
    count, and an episode of length 0 is left out. Booleans are never inspected, so that a GPU need
    not wait; numbers are. A task out of range counts in the overall rate only, a length beyond T
    drops the episode, and `compute` warns of either.

    Returns:
        A dict: `rate` (), `low` (), `high` (), `n` (), and with tasks `task_rate`, `task_low`,
        `task_high`, `task_n` (num_tasks,). Without episodes the rate is NaN and the interval [0, 1].

    Raises:
        ValueError: for options or shapes that do not fit, for numbers other than 0 and 1, and for
            NaN under `nan_policy="error"`.

    References:
        torch_world `success_rate`; Wilson (1927); Newcombe (1998); Zou and Donner (2008). Equal to
        statsmodels and SciPy to 1e-9.

    Example:
        >>> import torch
        >>> from dynmetrics.control import SuccessRate
        >>> metric = SuccessRate()
        >>> metric.update(torch.tensor([True, False, True]))
        >>> metric.update(torch.tensor([True]))
        >>> metric.compute()["rate"]
        tensor(0.7500, dtype=torch.float64)
    """

    higher_is_better = True
    counts: Tensor
    task_counts: Tensor

    def __init__(
        self,
        *,
        confidence: float = 0.95,
        interval: str = "wilson",
        mode: str = "final",
        num_tasks: int | None = None,
        average: str = "micro",
        nan_policy: str = "error",
        **kwargs: Any,
    ) -> None:
        check_fraction("confidence", confidence)
        check_choice("interval", interval, INTERVALS)
        check_choice("mode", mode, ("final", "any"))
        check_choice("average", average, ("micro", "macro"))
        check_choice("nan_policy", nan_policy, NAN_POLICIES)
        if num_tasks is not None:
            check_positive_int("num_tasks", num_tasks)
        elif average == "macro":
            raise refuse("num_tasks", "the number of tasks for average='macro'", "None")
        super().__init__(**kwargs)
        self.confidence = confidence
        self.interval = interval
        self.mode = mode
        self.num_tasks = num_tasks
        self.average = average
        self.nan_policy = nan_policy
        self.add_counts("counts", (4,))
        if num_tasks is not None:
            self.add_counts("task_counts", (2, num_tasks))

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        axes: dict[str, tuple[str, ...]] = {"rate": (), "low": (), "high": (), "n": ()}
        if self.num_tasks is not None:
            axes.update({f"task_{name}": ("task",) for name in axes})
        return axes

    def update(
        self, success: Tensor, task: Tensor | None = None, lengths: Tensor | None = None
    ) -> None:
        """Count episodes: success (N,) or (N, T), task (N,), lengths (N,)."""
        values = _checked_success(success, self.nan_policy)
        lengths = None if lengths is None else _per_episode("lengths", lengths, values)
        tasks = self._checked_tasks(task, values)
        outcome, valid, too_long = episode_outcomes(values, lengths, self.mode)
        if self.nan_policy == "omit":
            valid = valid & ~outcome.isnan()
        # NaN is not 1: what is still there of it counts as failure.
        rows = torch.stack([(outcome == 1) & valid, valid])
        if tasks is None or self.num_tasks is None:
            stray = torch.zeros_like(valid)
            self.accumulate(counts=torch.stack([*rows, too_long, stray]).sum(1))
            return
        inside = (tasks >= 0) & (tasks < self.num_tasks)
        counts = torch.stack([*rows, too_long, valid & ~inside]).sum(1)
        index = tasks.clamp(0, self.num_tasks - 1).expand(2, -1)
        per_task = torch.zeros_like(self.task_counts)
        per_task = per_task.scatter_add(1, index, (rows & inside).to(torch.int64))
        self.accumulate(counts=counts, task_counts=per_task)

    def compute(self) -> dict[str, Tensor]:
        """Rates and intervals over all episodes seen."""
        self._warn()
        successes, n = self.counts[0], self.counts[1]
        if self.num_tasks is None:
            low, high = proportion_bounds(successes, n, self.confidence, self.interval)
            return {"rate": ratio(successes, n), "low": low, "high": high, "n": n}
        task_k, task_n = self.task_counts.unbind()
        task_rate = ratio(task_k, task_n)
        task_low, task_high = proportion_bounds(task_k, task_n, self.confidence, self.interval)
        if self.average == "macro":
            rate, low, high = macro_rate(task_rate, task_low, task_high)
        else:
            rate = ratio(successes, n)
            low, high = proportion_bounds(successes, n, self.confidence, self.interval)
        overall = {"rate": rate, "low": low, "high": high, "n": n}
        tasks = {"rate": task_rate, "low": task_low, "high": task_high, "n": task_n}
        return overall | {f"task_{name}": value for name, value in tasks.items()}

    def _checked_tasks(self, task: Any, values: Tensor) -> Tensor | None:
        if self.num_tasks is None:
            if task is not None:
                raise refuse("task", "None without num_tasks", describe(task))
            return None
        if task is None:
            raise refuse("task", f"a task (N,) for num_tasks={self.num_tasks}", "None")
        return _per_episode("task", task, values)

    def _warn(self) -> None:
        too_long, stray = self.counts[2:].tolist()
        if too_long:
            self.warn_once("lengths", f"{too_long} episodes left out: lengths exceed T")
        if stray:
            self.warn_once("task", f"{stray} episodes have a task not below {self.num_tasks}")


def episode_outcomes(
    success: Tensor, lengths: Tensor | None, mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    """The outcome of every episode: 1, 0 or NaN; whether it has a valid step; whether its length
    exceeds T."""
    everyone = torch.ones(len(success), dtype=torch.bool, device=success.device)
    if success.ndim == 1:
        return success, everyone, ~everyone
    steps = success.shape[1]
    if lengths is None:
        lengths = torch.full_like(everyone, steps, dtype=torch.int64)
    too_long = lengths > steps
    valid = (lengths >= 1) & ~too_long
    if mode == "final":
        last = lengths.clamp(1, steps) - 1
        return success.gather(1, last.unsqueeze(1)).squeeze(1), valid, too_long
    within = torch.arange(steps, device=success.device) < lengths.unsqueeze(1)
    succeeded = ((success == 1) & within).any(1)
    unknown = (success.isnan() & within).any(1)
    outcome = torch.where(succeeded, 1.0, torch.where(unknown, torch.nan, 0.0))
    return outcome, valid, too_long


def macro_rate(rate: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean rate of the tasks that have episodes, with the MOVER interval of Zou and Donner."""
    present = ~rate.isnan()
    tasks = present.sum()
    mean = rate.nanmean()
    below = torch.where(present, rate - low, 0).square().sum().sqrt() / tasks
    above = torch.where(present, high - rate, 0).square().sum().sqrt() / tasks
    empty = tasks == 0
    return (
        mean,
        (mean - below).clamp(0, 1).masked_fill(empty, 0.0),
        (mean + above).clamp(0, 1).masked_fill(empty, 1.0),
    )


def _checked_success(success: Any, nan_policy: str) -> Tensor:
    """Success as float: 1, 0 or NaN."""
    check_tensor("success", success)
    if success.ndim not in (1, 2) or (success.ndim == 2 and not success.shape[1]):
        raise refuse("success", "the shape (N,) or (N, T), T >= 1", describe(success))
    values = success.float()
    if success.dtype is not torch.bool:
        missing = values.isnan()
        if nan_policy == "error" and bool(missing.any()):
            raise refuse("success", "no NaN (nan_policy='error')", describe(success))
        if not bool(((success == 0) | (success == 1) | missing).all()):
            raise refuse("success", "only 0 and 1", describe(success))
    result: Tensor = values
    return result


def _per_episode(argument: str, value: Any, success: Tensor) -> Tensor:
    """Integers (N,) beside the episodes of `success`."""
    check_tensor(argument, value, success.device)
    if value.shape != success.shape[:1] or (argument == "lengths" and success.ndim == 1):
        raise refuse(argument, f"the shape (N,) = ({len(success)},) beside (N, T)", describe(value))
    return whole_numbers(argument, value)


def success_rate(success: Tensor, confidence: float = 0.95, **options: Any) -> Rate:
    """`SuccessRate` of all episodes at once, as plain numbers.

    Args:
        success: (N,) or (N, T), boolean or 0 and 1.
        confidence: the probability of covering the true rate.
        options: those of `SuccessRate` without tasks, and `lengths` for `update`.

    Returns:
        `Rate(value, low, high, n)`; value NaN and [0, 1] without episodes.

    Example:
        >>> import torch
        >>> rate = success_rate(torch.tensor([True] * 8 + [False] * 8))
        >>> print(f"{rate.value} [{rate.low:.2f}, {rate.high:.2f}]")
        0.5 [0.28, 0.72]
    """
    lengths = options.pop("lengths", None)
    metric = SuccessRate(confidence=confidence, sync_on_compute=False, **options)
    metric = metric.to(success.device)
    metric.update(success, lengths=lengths)
    result = metric.compute()
    rate, low, high = (float(result[name]) for name in ("rate", "low", "high"))
    return Rate(rate, low, high, int(result["n"]))
