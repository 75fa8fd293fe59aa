"""Success rates and binomial intervals by the definition.

References: Wilson 1927 (score interval), Clopper and Pearson 1934 (exact), Brown, Cai and DasGupta
2001 (Jeffreys, Agresti-Coull), Newcombe 1998 (continuity-corrected Wilson), Zou and Donner 2008
(MOVER, the interval of a sum of rates from the intervals of its parts).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, nan, sqrt
from typing import Any

import numpy as np
from scipy import stats

Bounds = tuple[float, float]


def normal_quantile(confidence: float) -> float:
    """The two-sided z of a confidence level: 1.96 for 0.95."""
    return float(stats.norm.ppf(0.5 + confidence / 2))


def within_unit(low: float, high: float, k: float, n: float) -> Bounds:
    """Bounds inside [0, 1], exactly 0 when nothing and exactly 1 when everything succeeded."""
    low = 0.0 if k == 0 else max(0.0, low)
    high = 1.0 if k == n else min(1.0, high)
    return low, high


def wilson_interval(k: float, n: float, confidence: float = 0.95) -> Bounds:
    """Wilson's score interval without continuity correction."""
    if n == 0:
        return 0.0, 1.0
    z = normal_quantile(confidence)
    p = k / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return within_unit(centre - half, centre + half, k, n)


def corrected_wilson_interval(k: float, n: float, confidence: float = 0.95) -> Bounds:
    """Wilson's interval with continuity correction (Newcombe 1998, method 4)."""
    if n == 0:
        return 0.0, 1.0
    z = normal_quantile(confidence)
    p, q = k / n, 1 - k / n
    low, high = 0.0, 1.0
    # The formula takes the root of a negative number at the edges, where the bound is known anyway.
    if k > 0:
        root = sqrt(z * z - 2 - 1 / n + 4 * p * (n * q + 1))
        low = (2 * n * p + z * z - 1 - z * root) / (2 * (n + z * z))
    if k < n:
        root = sqrt(z * z + 2 - 1 / n + 4 * p * (n * q - 1))
        high = (2 * n * p + z * z + 1 + z * root) / (2 * (n + z * z))
    return within_unit(low, high, k, n)


def exact_interval(k: float, n: float, confidence: float = 0.95) -> Bounds:
    """Clopper and Pearson's interval: the tests of both tails, inverted."""
    if n == 0:
        return 0.0, 1.0
    tail = (1 - confidence) / 2
    low = 0.0 if k == 0 else float(stats.beta.ppf(tail, k, n - k + 1))
    high = 1.0 if k == n else float(stats.beta.ppf(1 - tail, k + 1, n - k))
    return low, high


def jeffreys_interval(k: float, n: float, confidence: float = 0.95) -> Bounds:
    """Equal-tailed posterior interval under the prior Beta(1/2, 1/2)."""
    if n == 0:
        return 0.0, 1.0
    tail = (1 - confidence) / 2
    low = float(stats.beta.ppf(tail, k + 0.5, n - k + 0.5))
    high = float(stats.beta.ppf(1 - tail, k + 0.5, n - k + 0.5))
    return within_unit(low, high, k, n)


def agresti_coull_interval(k: float, n: float, confidence: float = 0.95) -> Bounds:
    """Wald's interval after adding z^2/2 successes and z^2/2 failures."""
    if n == 0:
        return 0.0, 1.0
    z = normal_quantile(confidence)
    n_added = n + z * z
    p_added = (k + z * z / 2) / n_added
    half = z * sqrt(p_added * (1 - p_added) / n_added)
    return within_unit(p_added - half, p_added + half, k, n)


INTERVALS = {
    "wilson": wilson_interval,
    "wilsoncc": corrected_wilson_interval,
    "exact": exact_interval,
    "jeffreys": jeffreys_interval,
    "agresti-coull": agresti_coull_interval,
}


def rate_with_interval(
    k: float, n: float, confidence: float = 0.95, interval: str = "wilson"
) -> tuple[float, float, float]:
    """(rate, low, high) of k successes in n trials; (NaN, 0, 1) without trials."""
    low, high = INTERVALS[interval](k, n, confidence)
    return (k / n if n else nan), low, high


def mover_interval(rates: Sequence[float], bounds: Sequence[Bounds]) -> Bounds:
    """Interval of the plain mean of independent rates, from the interval of each (MOVER)."""
    if not rates:
        return 0.0, 1.0
    weight = 1 / len(rates)
    mean = sum(weight * rate for rate in rates)
    below = sum((weight * (rate - low)) ** 2 for rate, (low, _) in zip(rates, bounds, strict=True))
    above = sum(
        (weight * (high - rate)) ** 2 for rate, (_, high) in zip(rates, bounds, strict=True)
    )
    return max(0.0, mean - sqrt(below)), min(1.0, mean + sqrt(above))


def episode_outcome(steps: Any, length: int | None = None, mode: str = "final") -> float | None:
    """1, 0 or NaN for one episode; None for an episode without a valid step.

    `steps` is the success flag of the episode, or one flag per timestep of which the first
    `length` are valid. In mode "any" one success settles the matter, whatever else is NaN.
    """
    flags = [float(flag) for flag in np.atleast_1d(np.asarray(steps, dtype=np.float64))]
    flags = flags if length is None else flags[:length]
    for flag in flags:
        if not (flag in (0.0, 1.0) or isnan(flag)):
            raise ValueError(f"success must be 0 or 1, got {flag}")
    if not flags:
        return None
    if mode == "final":
        return flags[-1]
    if mode == "any":
        if 1.0 in flags:
            return 1.0
        return nan if any(isnan(flag) for flag in flags) else 0.0
    raise ValueError(f"unknown mode {mode!r}")


def settle_nan(outcome: float, nan_policy: str) -> float | None:
    """What a NaN outcome counts as: an error, nothing at all (None), or a failure."""
    if not isnan(outcome):
        return outcome
    if nan_policy == "omit":
        return None
    if nan_policy == "failure":
        return 0.0
    raise ValueError("success holds NaN")


def success_rate(
    success: Any,
    task: Any = None,
    lengths: Any = None,
    *,
    confidence: float = 0.95,
    interval: str = "wilson",
    mode: str = "final",
    num_tasks: int | None = None,
    average: str = "micro",
    nan_policy: str = "error",
) -> dict[str, Any]:
    """The success rate of episodes, with its interval, per task as well when tasks are given.

    `success` is a sequence of episodes, each one flag or one flag per timestep; their lengths may
    differ. `average="macro"` is the mean over the tasks that had an episode.
    """
    tasks = [0] * len(success) if task is None else [int(t) for t in task]
    n_tasks = num_tasks if num_tasks is not None else max(tasks, default=-1) + 1
    won, tried = [0] * n_tasks, [0] * n_tasks
    for index, steps in enumerate(success):
        length = None if lengths is None else int(lengths[index])
        outcome = episode_outcome(steps, length, mode)
        outcome = None if outcome is None else settle_nan(outcome, nan_policy)
        if outcome is None:
            continue
        won[tasks[index]] += int(outcome)
        tried[tasks[index]] += 1

    per_task = [
        rate_with_interval(k, n, confidence, interval) for k, n in zip(won, tried, strict=True)
    ]
    if average == "micro":
        rate, low, high = rate_with_interval(sum(won), sum(tried), confidence, interval)
    elif average == "macro" and task is not None:
        with_episodes = [row for row, n in zip(per_task, tried, strict=True) if n]
        rates = [row[0] for row in with_episodes]
        rate = sum(rates) / len(rates) if rates else nan
        low, high = mover_interval(rates, [(row[1], row[2]) for row in with_episodes])
    else:
        raise ValueError(f"average {average!r} with task={task!r}")

    result: dict[str, Any] = {"rate": rate, "low": low, "high": high, "n": sum(tried)}
    if task is not None:
        result["task_rate"] = np.array([row[0] for row in per_task], dtype=np.float64)
        result["task_low"] = np.array([row[1] for row in per_task], dtype=np.float64)
        result["task_high"] = np.array([row[2] for row in per_task], dtype=np.float64)
        result["task_n"] = np.array(tried, dtype=np.int64)
    return result
