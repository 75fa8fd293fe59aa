"""What all metrics of episodes share: padded lengths, and the breakdown by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dynmetrics.control.intervals import mean_bounds
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
from dynmetrics.core.moments import fold_moments, moment_mean

_DROPPED = ("lengths", "task")


class EpisodeMetric(StreamingMetric):
    """A metric of episodes that can be broken down by task.

    Results of G groups, of which the first is all episodes and the others are the tasks, come out
    as `name` () and, with `num_tasks`, `task_name` (num_tasks,).

    Args:
        num_tasks: also report every task; `update` then needs `task` (N,), from 0 to num_tasks - 1.
        average: "micro" pools episodes; "macro" averages the tasks that have episodes.
        confidence: the probability with which an interval covers the truth, or None for none.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.
    """

    dropped: Tensor

    def __init__(
        self,
        *,
        num_tasks: int | None = None,
        average: str = "micro",
        confidence: float | None = None,
        **kwargs: Any,
    ) -> None:
        check_choice("average", average, ("micro", "macro"))
        if confidence is not None:
            check_fraction("confidence", confidence)
        if num_tasks is not None:
            check_positive_int("num_tasks", num_tasks)
        elif average == "macro":
            raise refuse("num_tasks", "the number of tasks for average='macro'", "None")
        super().__init__(**kwargs)
        self.num_tasks = num_tasks
        self.average = average
        self.confidence = confidence
        self.groups = 1 + (num_tasks or 0)
        self.add_counts("dropped", (len(_DROPPED),))

    def checked_task(self, task: Any, episodes: Tensor) -> Tensor:
        """The group of every episode's task, (N,); 0, which is no task, for those out of range."""
        if self.num_tasks is None:
            if task is not None:
                raise refuse("task", "None without num_tasks", describe(task))
            return torch.zeros(len(episodes), dtype=torch.int64, device=episodes.device)
        if task is None:
            raise refuse("task", f"a task (N,) for num_tasks={self.num_tasks}", "None")
        tasks = per_episode("task", task, episodes)
        return torch.where((tasks >= 0) & (tasks < self.num_tasks), tasks + 1, 0)

    def count_dropped(self, too_long: Tensor, group: Tensor) -> Tensor:
        """What a batch adds to `dropped`."""
        stray = group == 0 if self.num_tasks is not None else torch.zeros_like(too_long)
        return torch.stack([too_long, stray & ~too_long]).sum(1)

    def by_group(self, rows: Tensor, group: Tensor) -> Tensor:
        """Sums of `rows` (R, N) over all episodes and over those of every task, (R, G)."""
        sums = rows.new_zeros((len(rows), self.groups)).index_add(1, group, rows)
        return torch.cat([rows.sum(1, keepdim=True), sums[:, 1:]], 1)

    def named(self, entries: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Entries (G,) by name: all episodes first, then the tasks."""
        result = {name: value[0] for name, value in entries.items()}
        if self.num_tasks is not None:
            result.update({f"task_{name}": value[1:] for name, value in entries.items()})
        return result

    def named_axes(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The axes of what `named` returns."""
        axes: dict[str, tuple[str, ...]] = dict.fromkeys(names, ())
        if self.num_tasks is not None:
            axes.update({f"task_{name}": ("task",) for name in names})
        return axes

    def warn_of_dropped(self) -> None:
        """Say once that episodes were left out; reads the device, so in compute only."""
        too_long, stray = self.dropped.tolist()
        if too_long:
            self.warn_once("lengths", f"{too_long} episodes left out: lengths exceed T")
        if stray:
            self.warn_once("task", f"{stray} episodes have a task not below {self.num_tasks}")


class EpisodeMean(EpisodeMetric):
    """The mean over episodes of one value each; episodes without a value are left out and counted.

    A subclass names its `headline` and gives `add_episodes` the values, NaN where there is none;
    what is not finite is no value.
    """

    headline = "mean"
    moments: Tensor
    excluded: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_folded("moments", (3, self.groups), fold_moments)
        self.add_counts("excluded", (self.groups,))

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        bounds = ("low", "high") if self.confidence is not None else ()
        return self.named_axes([self.headline, "n", "n_excluded", *bounds])

    def add_episodes(self, values: Tensor, too_long: Tensor, group: Tensor) -> None:
        """Add values (N,), NaN or infinite for episodes without one."""
        if not len(values):
            return
        values = torch.where(too_long, torch.nan, values.to(torch.float64))
        # One infinite value would spoil every mean, and differently in every split.
        valid = values.isfinite()
        self.accumulate(
            moments=self._group_moments(torch.where(valid, values, 0.0), valid, group),
            excluded=self.by_group((~valid & ~too_long).to(torch.int64).unsqueeze(0), group)[0],
            dropped=self.count_dropped(too_long, group),
        )

    def _group_moments(self, values: Tensor, valid: Tensor, group: Tensor) -> Tensor:
        weight = valid.to(torch.float64)
        n, total = self.by_group(torch.stack([weight, values * weight]), group)
        mean = total / n.clamp(min=1)
        overall = (values - mean[0]).square() * weight
        own = (values - mean[group]).square() * weight
        squares = self.by_group(own.unsqueeze(0), group)[0]
        return torch.stack([n, mean, torch.cat([overall.sum().reshape(1), squares[1:]])])

    def compute(self) -> dict[str, Tensor]:
        """The mean over everything seen, and over every task."""
        self.warn_of_dropped()
        mean = moment_mean(self.moments)
        n = self.moments[0].to(torch.int64)
        error = (self.moments[2] / (n - 1).clamp(min=0) / n).sqrt()
        low, high = mean_bounds(mean, error, n, self.confidence or 0.95)
        if self.average == "macro":
            mean, low, high = macro_average(mean, low, high)
        entries = {self.headline: mean, "n": n, "n_excluded": self.excluded}
        if self.confidence is not None:
            entries.update(low=low, high=high)
        return self.named(entries)


def macro_average(mean: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The groups (G,), the first of them replaced by the average of the tasks that have a mean.

    Its interval is that of Zou and Donner (2008), MOVER.
    """
    present = ~mean[1:].isnan()
    tasks = present.sum()
    below = torch.where(present, (mean - low)[1:], 0).square().sum().sqrt() / tasks
    above = torch.where(present, (high - mean)[1:], 0).square().sum().sqrt() / tasks
    middle = mean[1:].nanmean()
    overall = (middle, middle - below, middle + above)
    pairs = zip(overall, (mean, low, high), strict=True)
    mean, low, high = (torch.cat([o.reshape(1), v[1:]]) for o, v in pairs)
    return mean, low, high


def per_episode(argument: str, value: Any, episodes: Tensor) -> Tensor:
    """Integers (N,) beside `episodes` (N, ...)."""
    check_tensor(argument, value, episodes.device)
    if value.shape != episodes.shape[:1]:
        raise refuse(argument, f"the shape (N,) = ({len(episodes)},)", describe(value))
    return whole_numbers(argument, value)


def checked_lengths(lengths: Any, episodes: Tensor) -> tuple[Tensor, Tensor]:
    """The valid steps (N,) of `episodes` (N, T, ...), and which lengths are impossible.

    An impossible length, above T, is returned as 0, as are negative ones.
    """
    steps = episodes.shape[1]
    if lengths is None:
        lengths = torch.full(episodes.shape[:1], steps, device=episodes.device)
    else:
        lengths = per_episode("lengths", lengths, episodes)
    too_long = lengths > steps
    return torch.where(too_long, 0, lengths.clamp(min=0)), too_long


def steps_within(lengths: Tensor, steps: int) -> Tensor:
    """Whether a step belongs to its episode, (N, T)."""
    return torch.arange(steps, device=lengths.device) < lengths.unsqueeze(1)


def at_last_step(values: Tensor, lengths: Tensor) -> Tensor:
    """The entries (N, ...) of `values` (N, T, ...) at the last valid step; the first if none is."""
    last = (lengths - 1).clamp(min=0).reshape(-1, *[1] * (values.ndim - 1))
    return values.gather(1, last.expand(-1, 1, *values.shape[2:])).squeeze(1)


def checked_floats(argument: str, value: Any, axes: str, device: torch.device) -> Tensor:
    """Real numbers with the axes named, such as "NT", in float32 or wider; T is at least 1."""
    check_tensor(argument, value, device)
    shape = "(" + ", ".join(axes) + ")"
    if value.ndim != len(axes) or value.dtype is torch.bool:
        raise refuse(argument, f"numbers {shape}", describe(value))
    if "T" in axes and value.shape[axes.index("T")] == 0:
        raise refuse(argument, f"{shape} with at least one step", describe(value))
    exact = value.dtype is torch.float64 or not value.is_floating_point()
    wide: Tensor = value.double() if exact else value.float()
    return wide
