"""Aggregates over runs and tasks that outliers do not rule, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dynmetrics.control.episodes import checked_floats
from dynmetrics.core.checks import (
    check_fraction,
    check_positive_int,
    check_tensor,
    describe,
    device_of,
    refuse,
)


def iqm(scores: Tensor) -> Tensor:
    """Interquartile mean: the mean of the middle half of all scores, of all runs and tasks.

    Args:
        scores: any shape; floor(n / 4) of the n values are dropped on each side.

    Returns:
        A scalar in float64; NaN for no scores, or if one is NaN.

    References:
        Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
        2021; equal to SciPy `trim_mean(scores, 0.25)` to 1e-12.

    Example:
        >>> import torch
        >>> iqm(torch.tensor([0.0, 1.0, 2.0, 3.0, 100.0]))
        tensor(2., dtype=torch.float64)
    """
    check_tensor("scores", scores)
    ordered = scores.to(torch.float64).reshape(-1).sort().values
    cut = len(ordered) // 4
    # NaN is sorted to the end, where it would be cut.
    return torch.where(ordered.isnan().any(), torch.nan, ordered[cut : len(ordered) - cut].mean())


def optimality_gap(scores: Tensor, target: float = 1.0) -> Tensor:
    """How far scores fall short of `target` on average; scores above it do not make up for others.

    Example:
        >>> import torch
        >>> optimality_gap(torch.tensor([0.5, 2.0]))
        tensor(0.2500, dtype=torch.float64)
    """
    check_tensor("scores", scores)
    return (target - scores.to(torch.float64)).clamp(min=0).mean()


def probability_of_improvement(x: Tensor, y: Tensor) -> Tensor:
    """The chance that a run of x beats one of y on the same task, averaged over tasks.

    Args:
        x: scores (runs, tasks) of the first algorithm.
        y: those of the second; the number of runs may differ. Ties count half.

    Returns:
        A scalar from 0 to 1 in float64; NaN if a score is.

    Raises:
        ValueError: for shapes that do not fit.

    Example:
        >>> import torch
        >>> probability_of_improvement(torch.tensor([[1.0], [3.0]]), torch.tensor([[2.0], [1.0]]))
        tensor(0.6250, dtype=torch.float64)
    """
    first = checked_floats("x", x, "RK", device_of("x", x)).to(torch.float64)
    second = checked_floats("y", y, "RK", first.device).to(torch.float64)
    if first.shape[1] != second.shape[1]:
        raise refuse("y", f"scores of the {first.shape[1]} tasks of x", describe(y))
    difference = first.unsqueeze(1) - second.unsqueeze(0)
    wins = (difference > 0).double() + 0.5 * (difference == 0).double()
    return torch.where(difference.isnan(), torch.nan, wins).mean()


def stratified_bootstrap(
    scores: Tensor,
    statistic: Callable[[Tensor], Any],
    *,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float, float]:
    """A statistic of scores (runs, tasks) with its percentile bootstrap interval.

    Runs are drawn anew within every task, so that tasks keep their weight. All randomness comes
    from `seed`.

    Args:
        scores: (runs, tasks).
        statistic: from (runs, tasks) to a number, such as `iqm`.
        resamples: how many times to draw.
        confidence: the probability that the interval aims to cover.
        seed: of the generator.

    Returns:
        The value, and the bounds of the interval.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        Agarwal et al. (2021), `rliable`.

    Example:
        >>> import torch
        >>> stratified_bootstrap(torch.ones(5, 2), iqm, resamples=100)
        (1.0, 1.0, 1.0)
    """
    check_positive_int("resamples", resamples)
    check_fraction("confidence", confidence)
    values = checked_floats("scores", scores, "RK", device_of("scores", scores)).to(torch.float64)
    runs = len(values)
    if runs == 0:
        raise refuse("scores", "at least one run", describe(scores))
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.empty(resamples, dtype=torch.float64)
    for i in range(resamples):
        index = torch.randint(runs, values.shape, generator=generator).to(values.device)
        drawn[i] = float(statistic(values.gather(0, index)))
    tails = torch.tensor([(1 - confidence) / 2, (1 + confidence) / 2], dtype=torch.float64)
    low, high = drawn.quantile(tails).tolist()
    return float(statistic(values)), low, high
