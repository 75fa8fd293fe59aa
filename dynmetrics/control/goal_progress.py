"""How much of the way to the goal was made."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.control.episodes import (
    EpisodeMean,
    at_last_step,
    checked_floats,
    checked_lengths,
    steps_within,
)
from dynmetrics.core.checks import check_flag, device_of


class GoalProgress(EpisodeMean):
    r"""Share of the initial distance to the goal that an episode has made: 1 - d_end / d_0.

    1 at the goal, 0 for no progress, negative for an episode that ends farther away. A small
    initial distance makes large values; an initial distance of 0 makes none, and such episodes are
    left out and counted.

    Args:
        clip: keep every episode within [0, 1].
        best: use the smallest distance of the episode instead of the last.
        kwargs: `num_tasks`, `average` and `confidence` as in `SuccessRate` (the interval of the
            mean is Student's); `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `distances` (N, T) to the goal, `lengths` (N,), the valid steps of padded
    episodes, and `task` (N,).

    Returns:
        A dict: `progress` (), `n`, `n_excluded`, with `confidence` also `low` and `high`, and with
        tasks each of them as `task_...` (num_tasks,). NaN without episodes.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        torch_world `progress`, to 1e-6.

    Example:
        >>> import torch
        >>> from dynmetrics.control import GoalProgress
        >>> metric = GoalProgress()
        >>> metric.update(torch.tensor([[2.0, 1.0]]))
        >>> metric.update(torch.tensor([[4.0, 4.0], [0.0, 1.0]]))
        >>> metric.compute()
        {'progress': tensor(0.2500, dtype=torch.float64), 'n': tensor(2), 'n_excluded': tensor(1)}
    """

    higher_is_better = True
    headline = "progress"

    def __init__(self, *, clip: bool = False, best: bool = False, **kwargs: Any) -> None:
        check_flag("clip", clip)
        check_flag("best", best)
        super().__init__(**kwargs)
        self.clip = clip
        self.best = best

    def update(
        self, distances: Tensor, lengths: Tensor | None = None, task: Tensor | None = None
    ) -> None:
        """Add episodes: distances (N, T), lengths (N,), task (N,)."""
        values = checked_floats("distances", distances, "NT", self.device)
        group = self.checked_task(task, values)
        lengths, too_long = checked_lengths(lengths, values)
        made = episode_progress(values, lengths, self.best)
        self.add_episodes(made.clamp(0, 1) if self.clip else made, too_long, group)


def episode_progress(distances: Tensor, lengths: Tensor, best: bool = False) -> Tensor:
    """1 - d_end / d_0 for every episode of (N, T), NaN where d_0 is 0 or there is no step."""
    start = distances[:, 0]
    if best:
        within = steps_within(lengths, distances.shape[1])
        end = distances.masked_fill(~within, torch.inf).amin(1)
    else:
        end = at_last_step(distances, lengths)
    return torch.where((start > 0) & (lengths >= 1), 1 - end / start, torch.nan)


def progress(distances: Tensor) -> Tensor:
    """The progress of every episode of distances (N, T), (N,); NaN where it starts at the goal.

    Example:
        >>> import torch
        >>> progress(torch.tensor([[2.0, 1.0], [0.0, 1.0]]))
        tensor([0.5000,    nan])
    """
    values = checked_floats("distances", distances, "NT", device_of("distances", distances))
    lengths, _ = checked_lengths(None, values)
    return episode_progress(values, lengths)
