"""How smooth the actions are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.control.episodes import (
    EpisodeMean,
    checked_floats,
    checked_lengths,
    steps_within,
)
from dynmetrics.core.checks import (
    check_choice,
    check_flag,
    check_positive_int,
    describe,
    device_of,
    refuse,
)
from dynmetrics.core.numerics import ratio


class ActionSmoothness(EpisodeMean):
    r"""Mean size of the change from one action to the next; smaller is smoother.

    It depends on the scale of the actions and on the control rate: compare policies that share
    both. Episodes too short for a change are left out and counted, as are those that hold NaN.

    Args:
        order: 1 for changes, 2 for changes of changes, 3 for jerk.
        squared: square the norm of every change.
        weight: "episode" averages within episodes first; "step" pools all changes.
        confidence: as in `SuccessRate`; the interval of the mean over episodes is Student's, and
            there is none for `weight="step"`, for changes within an episode are not independent.
        kwargs: `num_tasks` and `average` as in `SuccessRate`; `network_output`, and torchmetrics'
            options.

    `update` takes `actions` (N, T, A), `lengths` (N,), the valid steps of padded episodes, and
    `task` (N,).

    Returns:
        A dict: `smoothness` () in units of the actions, `n`, `n_excluded`, with `confidence` also
        `low` and `high`, and with tasks each of them as `task_...` (num_tasks,). NaN without
        episodes.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        torch_world `smoothness`, to 1e-6.

    Example:
        >>> import torch
        >>> from dynmetrics.control import ActionSmoothness
        >>> metric = ActionSmoothness()
        >>> metric.update(torch.tensor([[[0.0, 0.0], [3.0, 4.0]]]))
        >>> metric.update(torch.tensor([[[1.0, 1.0], [1.0, 1.0]]]))
        >>> metric.compute()["smoothness"]
        tensor(2.5000, dtype=torch.float64)
    """

    higher_is_better = False
    headline = "smoothness"
    steps: Tensor

    def __init__(
        self,
        *,
        order: int = 1,
        squared: bool = False,
        weight: str = "episode",
        confidence: float | None = None,
        **kwargs: Any,
    ) -> None:
        check_positive_int("order", order)
        check_flag("squared", squared)
        check_choice("weight", weight, ("episode", "step"))
        if weight == "step" and confidence is not None:
            raise refuse("confidence", "None for weight='step'", describe(confidence))
        super().__init__(confidence=confidence, **kwargs)
        self.order = order
        self.squared = squared
        self.weight = weight
        if weight == "step":
            self.add_sum("steps", (2, self.groups))

    def update(
        self, actions: Tensor, lengths: Tensor | None = None, task: Tensor | None = None
    ) -> None:
        """Add episodes: actions (N, T, A), lengths (N,), task (N,)."""
        values = checked_floats("actions", actions, "NTA", self.device)
        group = self.checked_task(task, values)
        lengths, too_long = checked_lengths(lengths, values)
        total, n = change_sums(values, lengths, self.order, self.squared)
        if self.weight == "step":
            known = total.isfinite()
            sums = torch.where(known, torch.stack([total, n]), 0.0)
            self.accumulate(steps=self.by_group(sums, group))
        self.add_episodes(ratio(total, n), too_long, group)

    def compute(self) -> dict[str, Tensor]:
        """The mean over everything seen, and over every task."""
        result = super().compute()
        if self.weight == "step":
            pooled = ratio(*self.steps)
            if self.average == "macro":
                pooled[0] = pooled[1:].nanmean()
            result.update(self.named({self.headline: pooled}))
        return result


def change_sums(
    actions: Tensor, lengths: Tensor, order: int, squared: bool
) -> tuple[Tensor, Tensor]:
    """The sum of the norms of all changes of every episode, and their number, (N,) in float64."""
    changes = actions.diff(n=order, dim=1)
    sizes = torch.linalg.vector_norm(changes, dim=2, dtype=torch.float64)
    within = steps_within(lengths - order, sizes.shape[1])
    sizes = torch.where(within, sizes.square() if squared else sizes, 0.0)
    return sizes.sum(1), within.sum(1, dtype=torch.float64)


def smoothness(actions: Tensor) -> Tensor:
    """The mean change of every episode of actions (N, T, A), (N,); NaN for T = 1.

    Example:
        >>> import torch
        >>> smoothness(torch.tensor([[[0.0], [1.0], [-1.0]]]))
        tensor([1.5000])
    """
    values = checked_floats("actions", actions, "NTA", device_of("actions", actions))
    lengths, _ = checked_lengths(None, values)
    return ratio(*change_sums(values, lengths, 1, squared=False)).to(values.dtype)
