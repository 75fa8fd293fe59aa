"""How often episodes succeed, and how sure that is."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dynmetrics.control.episodes import (
    EpisodeMetric,
    at_last_step,
    checked_lengths,
    macro_average,
    steps_within,
)
from dynmetrics.control.intervals import INTERVALS, proportion_bounds
from dynmetrics.core.checks import (
    check_choice,
    check_fraction,
    check_tensor,
    describe,
    device_of,
    refuse,
)
from dynmetrics.core.metric import Axes
from dynmetrics.core.numerics import ratio

NAN_POLICIES = ("error", "omit", "failure")


class Rate(NamedTuple):
    """A success rate over n episodes with its confidence interval."""

    value: float
    low: float
    high: float
    n: int


class SuccessRate(EpisodeMetric):
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
        `task_high`, `task_n` (num_tasks,). Without episodes the rate is NaN, the interval [0, 1].

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
        check_choice("nan_policy", nan_policy, NAN_POLICIES)
        super().__init__(num_tasks=num_tasks, average=average, **kwargs)
        self.rate_confidence = confidence
        self.interval = interval
        self.mode = mode
        self.nan_policy = nan_policy
        self.add_counts("counts", (2, self.groups))

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        return self.named_axes(("rate", "low", "high", "n"))

    def update(
        self, success: Tensor, task: Tensor | None = None, lengths: Tensor | None = None
    ) -> None:
        """Count episodes: success (N,) or (N, T), task (N,), lengths (N,)."""
        check_tensor("success", success, self.device)
        values = checked_success(success, self.nan_policy, lengths)
        if lengths is not None and values.ndim == 1:
            raise refuse("lengths", "None beside success (N,)", describe(lengths))
        group = self.checked_task(task, values)
        outcome, valid, too_long = episode_outcomes(values, lengths, self.mode)
        if self.nan_policy == "omit":
            valid = valid & ~outcome.isnan()
        # NaN is not 1: what is still there of it counts as failure.
        rows = torch.stack([(outcome == 1) & valid, valid]).to(torch.int64)
        self.accumulate(
            counts=self.by_group(rows, group), dropped=self.count_dropped(too_long, group)
        )

    def compute(self) -> dict[str, Tensor]:
        """Rates and intervals over all episodes seen."""
        self.warn_of_dropped()
        successes, n = self.counts
        rate = ratio(successes, n)
        low, high = proportion_bounds(successes, n, self.rate_confidence, self.interval)
        if self.average == "macro":
            rate, low, high = macro_average(rate, low, high)
            # Without any task nothing is known.
            low, high = low.nan_to_num(0.0).clamp(0, 1), high.nan_to_num(1.0).clamp(0, 1)
        return self.named({"rate": rate, "low": low, "high": high, "n": n})


def episode_outcomes(
    success: Tensor, lengths: Tensor | None, mode: str
) -> tuple[Tensor, Tensor, Tensor]:
    """What became of every episode of (N,) or (N, T).

    Returns:
        The outcome 1, 0 or NaN, whether there is a valid step, and whether the length exceeds T.
    """
    if success.ndim == 1:
        everyone = torch.ones(len(success), dtype=torch.bool, device=success.device)
        return success, everyone, ~everyone
    lengths, too_long = checked_lengths(lengths, success)
    if mode == "final":
        return at_last_step(success, lengths), lengths >= 1, too_long
    within = steps_within(lengths, success.shape[1])
    succeeded = ((success == 1) & within).any(1)
    unknown = (success.isnan() & within).any(1)
    outcome = torch.where(succeeded, 1.0, torch.where(unknown, torch.nan, 0.0))
    return outcome, lengths >= 1, too_long


def checked_success(success: Any, nan_policy: str = "error", lengths: Any = None) -> Tensor:
    """Success (N,) or (N, T) as float: 1, 0 or NaN; what lies behind `lengths` is not looked at."""
    check_tensor("success", success)
    if success.ndim not in (1, 2) or (success.ndim == 2 and not success.shape[1]):
        raise refuse("success", "the shape (N,) or (N, T), T >= 1", describe(success))
    values: Tensor = success.float()
    if success.dtype is not torch.bool:
        if lengths is not None and success.ndim == 2:
            valid, _ = checked_lengths(lengths, success)
            success = torch.where(steps_within(valid, success.shape[1]), success, 0)
            values = success.float()
        missing = values.isnan()
        if nan_policy == "error" and bool(missing.any()):
            raise refuse("success", "no NaN (nan_policy='error')", describe(success))
        if not bool(((success == 0) | (success == 1) | missing).all()):
            raise refuse("success", "only 0 and 1", describe(success))
    return values


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
    metric = metric.to(device_of("success", success))
    metric.update(success, lengths=lengths)
    result = metric.compute()
    rate, low, high = (float(result[name]) for name in ("rate", "low", "high"))
    return Rate(rate, low, high, int(result["n"]))
