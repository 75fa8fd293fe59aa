"""How many steps a policy needs until it succeeds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.control.episodes import (
    EpisodeMetric,
    checked_lengths,
    macro_average,
    steps_within,
)
from dynmetrics.control.intervals import mean_bounds
from dynmetrics.control.success import checked_success
from dynmetrics.core.checks import check_flag, check_positive_int, check_tensor, describe, refuse
from dynmetrics.core.metric import Axes
from dynmetrics.core.numerics import histogram_median, ratio

_ORDER = ("mean", "median", "reached", "restricted_mean", "survival", "n", "already_successful")
"""Of the entries of the result; the others follow."""


class StepsToSuccess(EpisodeMetric):
    r"""Steps until the first success, and how many episodes have not succeeded by then.

    `mean` and `median` are over successful episodes only, so they reward a policy that succeeds on
    easy episodes alone: read them beside `reached`. `restricted_mean` counts an episode without
    success with its full length, and `survival` is the share of episodes not yet successful after
    every step, with episodes that end early censored (Kaplan-Meier). Its state is a histogram.

    Args:
        max_steps: the largest step, T - 1 for success (N, T) whose first entry is the state after
            the reset.
        includes_initial_state: whether the first entry is the state after the reset, step 0; else
            it is the state after the first action, step 1.
        num_tasks: also report mean, reached, restricted_mean and n of every task.
        average: "macro" averages mean, reached and restricted_mean over the tasks that have them;
            median, survival and counts are of all episodes together.
        confidence: the probability with which `low` and `high` cover the true `mean` (Student's
            interval), or None for none.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `success` (N, T), boolean or 0 and 1, `lengths` (N,), the valid steps of padded
    episodes, and `task` (N,). An episode of length 0 does not count.

    Returns:
        A dict: `mean`, `median` (steps), `reached` (a fraction), `restricted_mean` (steps),
        `survival` (max_steps + 1,), `n`, and `already_successful`, the number of episodes that
        succeeded at step 0, before any action; with `confidence` also `low` and `high`, and with
        tasks `task_mean`, `task_reached`, `task_restricted_mean`, `task_n` (num_tasks,) and the
        bounds likewise. NaN where no episode counts.

    Raises:
        ValueError: for shapes or values that do not fit, and for more than `max_steps` steps.

    References:
        torch_world `first_success`; Kaplan and Meier (1958), equal to statsmodels to 1e-9.

    Example:
        >>> import torch
        >>> from dynmetrics.control import StepsToSuccess
        >>> metric = StepsToSuccess(max_steps=3)
        >>> metric.update(torch.tensor([[False, True, False, False]]))
        >>> metric.update(torch.tensor([[False, False, False, True], [False] * 4]))
        >>> metric.compute()["survival"]
        tensor([1.0000, 0.6667, 0.6667, 0.3333], dtype=torch.float64)
    """

    higher_is_better = False
    succeeded: Tensor
    censored: Tensor
    sums: Tensor

    def __init__(
        self,
        *,
        max_steps: int,
        includes_initial_state: bool = True,
        **kwargs: Any,
    ) -> None:
        check_flag("includes_initial_state", includes_initial_state)
        check_positive_int("max_steps", max_steps)
        super().__init__(**kwargs)
        self.max_steps = max_steps
        self.first_step = 0 if includes_initial_state else 1
        self.add_counts("succeeded", (max_steps + 1,))
        self.add_counts("censored", (max_steps + 2,))
        self.add_counts("sums", (5, self.groups))

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        bounds = ("low", "high") if self.confidence is not None else ()
        axes = self.named_axes(["mean", "reached", "restricted_mean", "n", *bounds])
        axes.update(median=(), survival=("T",), already_successful=())
        return {name: axes[name] for name in (*_ORDER, *axes) if name in axes}

    def update(
        self, success: Tensor, lengths: Tensor | None = None, task: Tensor | None = None
    ) -> None:
        """Count episodes: success (N, T), lengths (N,), task (N,)."""
        check_tensor("success", success, self.device)
        values = checked_success(success, lengths=lengths)
        if values.ndim != 2:
            raise refuse("success", "the shape (N, T)", describe(success))
        if values.shape[1] - 1 + self.first_step > self.max_steps:
            raise refuse("success", f"steps up to max_steps={self.max_steps}", describe(success))
        group = self.checked_task(task, values)
        lengths, too_long = checked_lengths(lengths, values)
        counts = (lengths >= 1) & ~too_long
        step = first_mark((values == 1) & steps_within(lengths, values.shape[1]))
        reached = step >= 0
        step, end = step + self.first_step, lengths + self.first_step
        spent = torch.where(reached, step, lengths)
        taken = torch.where(reached, step, 0)
        rows = counts * torch.stack([counts, reached, taken, taken * taken, spent])
        self.accumulate(
            succeeded=_histogram(step, counts & reached, self.max_steps + 1),
            censored=_histogram(end, counts & ~reached, self.max_steps + 2),
            sums=self.by_group(rows.to(torch.int64), group),
            dropped=self.count_dropped(too_long, group),
        )

    def compute(self) -> dict[str, Tensor]:
        """Steps and shares over all episodes seen."""
        self.warn_of_dropped()
        n, reached, steps, squares, spent = self.sums
        mean, share, restricted = ratio(steps, reached), ratio(reached, n), ratio(spent, n)
        deviations = (squares - steps * mean).clamp(min=0)
        error = (deviations / (reached - 1) / reached).sqrt()
        low, high = mean_bounds(mean, error, reached, self.confidence or 0.95)
        if self.average == "macro":
            mean, low, high = macro_average(mean, low, high)
            share[0], restricted[0] = share[1:].nanmean(), restricted[1:].nanmean()
        entries = {"mean": mean, "reached": share, "restricted_mean": restricted, "n": n}
        if self.confidence is not None:
            entries.update(low=low, high=high)
        result = self.named(entries)
        result["median"] = histogram_median(self.succeeded)
        result["survival"] = _survival(self.succeeded, self.censored[:-1], n[0])
        result["already_successful"] = self.succeeded[0]
        return {name: result[name] for name in (*_ORDER, *result)}


def _histogram(step: Tensor, counted: Tensor, size: int) -> Tensor:
    counts = torch.zeros(size, dtype=torch.int64, device=step.device)
    return counts.index_add(0, step.clamp(0, size - 1), counted.to(torch.int64))


def _survival(succeeded: Tensor, censored: Tensor, n: Tensor) -> Tensor:
    """The share not yet successful after every step, by Kaplan and Meier.

    `censored` counts by the step at which an episode was no longer watched.
    """
    gone = (succeeded + torch.cat([censored[1:], censored.new_zeros(1)])).cumsum(0)
    gone = gone + censored[0]
    at_risk = n - torch.cat([gone.new_zeros(1), gone[:-1]])
    survival = (1 - succeeded / at_risk.clamp(min=1).to(torch.float64)).cumprod(0)
    return torch.where(n > 0, survival, torch.nan)


def first_mark(marks: Tensor) -> Tensor:
    """The first True of every row, -1 where there is none."""
    # Of several largest values argmax takes the first; it has no kernel for booleans.
    return torch.where(marks.any(1), marks.to(torch.uint8).argmax(1), -1)


def first_success(success: Tensor) -> Tensor:
    """The step of the first success in (N, T), -1 where there is none; (N,) in int64.

    Example:
        >>> import torch
        >>> first_success(torch.tensor([[0, 1, 0], [0, 0, 0]]))
        tensor([ 1, -1])
    """
    values = checked_success(success)
    if values.ndim != 2:
        raise refuse("success", "the shape (N, T)", describe(success))
    return first_mark(values == 1)
