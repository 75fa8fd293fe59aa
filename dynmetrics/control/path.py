"""How direct the way to the goal was: SPL and its soft form."""

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
from dynmetrics.control.success import checked_success
from dynmetrics.core.checks import check_tensor, describe, device_of, refuse


class SPL(EpisodeMean):
    r"""Success weighted by path length: S * L / max(L, P), averaged over episodes.

    L is the shortest way to the goal and P the way taken. 1 for a success on the shortest way, 0
    for a failure, whatever its path holds. If L is 0, an episode that stays has 1 and one that
    travels 0. A goal that cannot be reached (`shortest` infinite, NaN or negative) leaves the
    episode out, failed or not; it is counted, as is a success whose path holds NaN. The straight
    line, the default for L, makes SPL smaller than the geodesic of a world with walls: give
    `shortest` where you know it.

    Args:
        kwargs: `num_tasks`, `average` and `confidence` as in `SuccessRate` (the interval of the
            mean is Student's); `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `success` (N,), boolean or 0 and 1, `positions` (N, T, D), `goal` (N, D),
    `lengths` (N,), the valid steps of padded episodes, `shortest` (N,), and `task` (N,).

    Returns:
        A dict: `spl` () in [0, 1], `n`, `n_excluded`, with `confidence` also `low` and `high`, and
        with tasks each of them as `task_...` (num_tasks,). NaN without episodes.

    Raises:
        ValueError: for options, shapes or values that do not fit.

    References:
        Anderson et al., "On Evaluation of Embodied Navigation Agents", 2018; torch_world `spl` to
        1e-6 but for episodes that start at the goal, where AllenAct's rule holds.

    Example:
        >>> import torch
        >>> from dynmetrics.control import SPL
        >>> metric = SPL()
        >>> path, goal = torch.tensor([[[0.0, 0.0], [1.0, 0.0]]]), torch.tensor([[1.0, 0.0]])
        >>> metric.update(torch.tensor([True]), path, goal)
        >>> metric.update(torch.tensor([False]), path, goal)
        >>> metric.compute()["spl"]
        tensor(0.5000, dtype=torch.float64)
    """

    higher_is_better = True
    headline = "spl"

    def update(
        self,
        success: Tensor,
        positions: Tensor,
        goal: Tensor,
        lengths: Tensor | None = None,
        shortest: Tensor | None = None,
        task: Tensor | None = None,
    ) -> None:
        """Add episodes: success (N,), positions (N, T, D), goal (N, D)."""
        points, goals = checked_paths(positions, goal, self.device)
        succeeded = checked_outcomes(success, points)
        group = self.checked_task(task, points)
        lengths, too_long = checked_lengths(lengths, points)
        best = shortest_path(points, goals, shortest)
        values = path_efficiency(best, travelled(points, lengths))
        # A failure counts 0 even if its path is broken.
        values = torch.where(succeeded == 1, values, 0.0)
        left_out = (lengths < 1) | unreachable(best, shortest)
        self.add_episodes(values.masked_fill(left_out, torch.nan), too_long, group)


class SoftSPL(EpisodeMean):
    r"""Progress weighted by path length: max(0, 1 - d_end / L) * L / max(L, P).

    SPL without the threshold of success: informative while successes are rare. Where the episode
    starts at the goal, one that stays has 1 and one that travels 0. A path that holds NaN leaves
    the episode out; it is counted. Only if `success` says that it failed does it count 0, as in
    SPL.

    Args:
        kwargs: as in `SPL`.

    `update` takes what `SPL` takes; `success` may be left out.

    Returns:
        As `SPL`, with the headline `spl`.

    Raises:
        ValueError: for options, shapes or values that do not fit.

    References:
        Datta et al., "Integrating Egocentric Localization for More Realistic Point-Goal Navigation
        Agents", 2020; the formula of habitat-lab.

    Example:
        >>> import torch
        >>> from dynmetrics.control import SoftSPL
        >>> metric = SoftSPL()
        >>> goal = torch.tensor([[2.0, 0.0]])
        >>> metric.update(positions=torch.tensor([[[0.0, 0.0], [1.0, 0.0]]]), goal=goal)
        >>> metric.update(positions=torch.tensor([[[0.0, 0.0], [2.0, 0.0]]]), goal=goal)
        >>> metric.compute()["spl"]
        tensor(0.7500, dtype=torch.float64)
    """

    higher_is_better = True
    headline = "spl"

    def update(
        self,
        success: Tensor | None = None,
        positions: Tensor | None = None,
        goal: Tensor | None = None,
        lengths: Tensor | None = None,
        shortest: Tensor | None = None,
        task: Tensor | None = None,
    ) -> None:
        """Add episodes: success (N,) or None, positions (N, T, D), goal (N, D)."""
        points, goals = checked_paths(positions, goal, self.device)
        failed = None if success is None else checked_outcomes(success, points) != 1
        group = self.checked_task(task, points)
        lengths, too_long = checked_lengths(lengths, points)
        best = shortest_path(points, goals, shortest)
        end = torch.linalg.vector_norm(
            at_last_step(points, lengths) - goals, dim=1, dtype=torch.float64
        )
        soft = torch.where(best > 0, (1 - end / best).clamp(min=0), 1.0)
        values = soft * path_efficiency(best, travelled(points, lengths))
        if failed is not None:
            values = torch.where(failed & values.isnan(), 0.0, values)
        left_out = (lengths < 1) | unreachable(best, shortest)
        self.add_episodes(values.masked_fill(left_out, torch.nan), too_long, group)


def checked_paths(positions: Any, goal: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """Positions (N, T, D) and goals (N, D)."""
    points = checked_floats("positions", positions, "NTD", device)
    goals = checked_floats("goal", goal, "ND", device)
    if goals.shape != (points.shape[0], points.shape[2]):
        raise refuse("goal", f"the shape {(points.shape[0], points.shape[2])}", describe(goal))
    return points, goals


def checked_outcomes(success: Any, positions: Tensor) -> Tensor:
    """Success (N,) beside positions (N, T, D): 1 or 0."""
    check_tensor("success", success, positions.device)
    outcomes = checked_success(success)
    if outcomes.shape != positions.shape[:1]:
        raise refuse("success", f"the shape (N,) = ({len(positions)},)", describe(success))
    return outcomes


def travelled(positions: Tensor, lengths: Tensor) -> Tensor:
    """The length (N,) of the way up to the last valid step."""
    steps = torch.linalg.vector_norm(positions.diff(dim=1), dim=2, dtype=torch.float64)
    within = steps_within(lengths - 1, steps.shape[1])
    return torch.where(within, steps, 0.0).sum(1)


def shortest_path(positions: Tensor, goal: Tensor, shortest: Any) -> Tensor:
    """The shortest way (N,): as given, else the straight line; NaN where there is none."""
    if shortest is None:
        straight: Tensor = torch.linalg.vector_norm(
            goal - positions[:, 0], dim=1, dtype=torch.float64
        )
        return straight
    best = checked_floats("shortest", shortest, "N", positions.device)
    if best.shape != positions.shape[:1]:
        raise refuse("shortest", f"the shape (N,) = ({len(positions)},)", describe(shortest))
    return torch.where(best.isfinite() & (best >= 0), best, torch.nan)


def unreachable(best: Tensor, shortest: Any) -> Tensor:
    """Which episodes (N,) have a given `shortest` that says that there is no way."""
    return torch.zeros_like(best, dtype=torch.bool) if shortest is None else best.isnan()


def path_efficiency(shortest: Tensor, taken: Tensor) -> Tensor:
    """L / max(L, P) for every episode; for L = 0 it is 1 without travel and else 0."""
    longer = torch.maximum(shortest, taken)
    # NaN is the longer of anything and NaN.
    return torch.where(longer == 0, 1.0, shortest / longer)


def path_length(positions: Tensor) -> Tensor:
    """The length (N,) of the way through positions (N, T, D).

    Example:
        >>> import torch
        >>> path_length(torch.tensor([[[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]]]))
        tensor([6.])
    """
    points = checked_floats("positions", positions, "NTD", device_of("positions", positions))
    lengths, _ = checked_lengths(None, points)
    return travelled(points, lengths).to(points.dtype)


def spl(success: Tensor, positions: Tensor, goal: Tensor, **options: Any) -> float:
    """`SPL` of all episodes at once, as a number; `lengths` and `shortest` as in its `update`.

    Example:
        >>> import torch
        >>> path = torch.tensor([[[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
        >>> spl(torch.tensor([True]), path, torch.tensor([[1.0, 0.0]]))
        0.5
    """
    metric = SPL(sync_on_compute=False).to(device_of("positions", positions))
    metric.update(success, positions, goal, **options)
    return float(metric.compute()["spl"])
