"""Episodes of policies by the definitions, in float64 and one episode at a time.

References: Anderson et al. 2018 (SPL), Kaplan and Meier 1958 (survival), McNemar 1947 with the
mid-p of Fagerland et al. 2013, Newcombe 1998 (differences of rates: method 10 of both papers), Zou
and Donner 2008 (mean of tasks), Cohen 1988 (arcsine effect size), Agarwal et al. 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import asin, comb, inf, isfinite, isnan, nan, sqrt
from typing import Any

import numpy as np
from scipy import stats

from tests.reference.success import wilson_interval

Bounds = tuple[float, float]
Vector = Sequence[float]


def mean_of(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else nan


def distance(one: Vector, other: Vector) -> float:
    return sqrt(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)))


def cut(steps: Any, length: Any = None) -> list[Any]:
    """The valid steps of an episode, as plain lists of float64."""
    rows = np.asarray(steps, dtype=np.float64).tolist()
    return rows if length is None else rows[: int(length)]


# ---------------------------------------------------------------------------- means over episodes


def student_interval(values: Sequence[float], confidence: float) -> Bounds:
    """Student's interval of a mean; nothing is known from one value."""
    n = len(values)
    if n == 0:
        return nan, nan
    if n == 1:
        return -inf, inf
    mean = mean_of(values)
    variance = sum((value - mean) ** 2 for value in values) / (n - 1)
    half = float(stats.t.ppf(0.5 + confidence / 2, n - 1)) * sqrt(variance / n)
    return mean - half, mean + half


def mover(means: Sequence[float], bounds: Sequence[Bounds]) -> Bounds:
    """The interval of the plain mean of independent means, from the interval of each."""
    if not means:
        return nan, nan
    pairs = list(zip(means, bounds, strict=True))
    below = sqrt(sum((mean - low) ** 2 for mean, (low, _) in pairs)) / len(means)
    above = sqrt(sum((high - mean) ** 2 for mean, (_, high) in pairs)) / len(means)
    return mean_of(means) - below, mean_of(means) + above


def episode_mean(
    headline: str,
    values: Sequence[float],
    tasks: Sequence[int] | None = None,
    *,
    num_tasks: int | None = None,
    average: str = "micro",
    confidence: float | None = None,
) -> dict[str, Any]:
    """Mean, n and n_excluded of one value per episode, NaN where an episode has none.

    Tasks that are not in range belong to the whole only.
    """

    def summary(members: Sequence[float]) -> dict[str, Any]:
        valid = [value for value in members if isfinite(value)]
        result = {
            headline: mean_of(valid),
            "n": len(valid),
            "n_excluded": len(members) - len(valid),
        }
        if confidence is not None:
            result["low"], result["high"] = student_interval(valid, confidence)
        return result

    overall: dict[str, Any] = summary(values)
    if num_tasks is None or tasks is None:
        return overall
    per_task = [
        summary([value for value, t in zip(values, tasks, strict=True) if t == task])
        for task in range(num_tasks)
    ]
    if average == "macro":
        present = [row for row in per_task if row["n"]]
        overall[headline] = mean_of([row[headline] for row in present])
        if confidence is not None:
            overall["low"], overall["high"] = mover(
                [row[headline] for row in present], [(row["low"], row["high"]) for row in present]
            )
    tasks_apart = {f"task_{name}": np.array([row[name] for row in per_task]) for name in overall}
    return overall | tasks_apart


# ---------------------------------------------------------------------------- one episode


def progress(distances: Vector, clip: bool = False, best: bool = False) -> float:
    """1 - d_end / d_0; NaN without a step or if the episode starts at the goal."""
    if not distances or any(isnan(d) for d in (distances if best else distances[-1:])):
        return nan
    if not distances[0] > 0:
        return nan
    value = 1 - (min(distances) if best else distances[-1]) / distances[0]
    return min(max(value, 0.0), 1.0) if clip else value


def path_length(positions: Sequence[Vector]) -> float:
    return sum(distance(a, b) for a, b in pairwise(positions))


def path_efficiency(shortest: float, taken: float) -> float:
    """L / max(L, P); an episode that starts at the goal has 1 if it stays and else 0."""
    if isnan(taken):
        return nan
    if shortest == 0:
        return 1.0 if taken == 0 else 0.0
    return shortest / max(shortest, taken)


def unreachable(shortest: float | None) -> bool:
    return shortest is not None and not (isfinite(shortest) and shortest >= 0)


def spl(
    success: float, positions: Sequence[Vector], goal: Vector, shortest: float | None = None
) -> float:
    if not positions or unreachable(shortest):
        return nan
    if not success:
        return 0.0
    best = distance(positions[0], goal) if shortest is None else shortest
    return nan if isnan(best) else path_efficiency(best, path_length(positions))


def soft_spl(
    success: float | None,
    positions: Sequence[Vector],
    goal: Vector,
    shortest: float | None = None,
) -> float:
    """Progress times path efficiency; a known failure with a broken path has made none."""
    if not positions or unreachable(shortest):
        return nan
    best = distance(positions[0], goal) if shortest is None else shortest
    taken, end = path_length(positions), distance(positions[-1], goal)
    if isnan(best) or isnan(taken) or isnan(end):
        return 0.0 if success is not None and not success else nan
    closed = 1.0 if best == 0 else max(0.0, 1 - end / best)
    return closed * path_efficiency(best, taken)


def change_sizes(actions: Sequence[Vector], order: int = 1, squared: bool = False) -> list[float]:
    """The norm of every change of the given order."""
    rows = [list(row) for row in actions]
    for _ in range(order):
        rows = [[b - a for a, b in zip(x, y, strict=True)] for x, y in pairwise(rows)]
    sizes = [sum(entry**2 for entry in row) for row in rows]
    return sizes if squared else [sqrt(size) for size in sizes]


def smoothness(
    episodes: Sequence[Sequence[Vector]],
    tasks: Sequence[int] | None = None,
    *,
    order: int = 1,
    squared: bool = False,
    weight: str = "episode",
    **options: Any,
) -> dict[str, Any]:
    sizes = [change_sizes(episode, order, squared) for episode in episodes]
    result = episode_mean("smoothness", [mean_of(s) for s in sizes], tasks, **options)
    if weight == "episode":
        return result
    sizes = [s if all(isfinite(size) for size in s) else [] for s in sizes]
    result["smoothness"] = mean_of([size for s in sizes for size in s])
    if tasks is None:
        return result
    pooled = [
        mean_of([size for s, t in zip(sizes, tasks, strict=True) for size in s if t == task])
        for task in range(options["num_tasks"])
    ]
    if options.get("average") == "macro":
        result["smoothness"] = mean_of([value for value in pooled if not isnan(value)])
    result["task_smoothness"] = np.array(pooled)
    return result


# ---------------------------------------------------------------------------- steps to success


def first_success(flags: Sequence[float]) -> int:
    for step, flag in enumerate(flags):
        if flag == 1:
            return step
    return -1


def kaplan_meier(episodes: Sequence[tuple[int, bool]], max_steps: int) -> list[float]:
    """The share that has not succeeded after step 0, 1, ..., max_steps.

    An episode is the step at which it succeeded or was last seen, and whether it succeeded.
    """
    if not episodes:
        return [nan] * (max_steps + 1)
    survival, curve = 1.0, []
    for step in range(max_steps + 1):
        at_risk = sum(last >= step for last, _ in episodes)
        events = sum(last == step and succeeded for last, succeeded in episodes)
        survival *= 1 - events / at_risk if at_risk else 1
        curve.append(survival)
    return curve


def steps_to_success(
    episodes: Sequence[Sequence[float]],
    tasks: Sequence[int] | None = None,
    *,
    max_steps: int,
    includes_initial_state: bool = True,
    num_tasks: int | None = None,
    average: str = "micro",
    confidence: float | None = None,
) -> dict[str, Any]:
    """Episodes are the flags of their valid steps; those without a step do not count."""
    shift = 0 if includes_initial_state else 1

    def summary(members: Sequence[Sequence[float]]) -> dict[str, Any]:
        members = [flags for flags in members if len(flags)]
        firsts = [first_success(flags) for flags in members]
        steps = [first + shift for first in firsts if first >= 0]
        spent = [
            first + shift if first >= 0 else len(flags)
            for first, flags in zip(firsts, members, strict=True)
        ]
        result = {
            "mean": mean_of(steps),
            "reached": len(steps) / len(members) if members else nan,
            "restricted_mean": mean_of(spent),
            "n": len(members),
        }
        if confidence is not None:
            result["low"], result["high"] = student_interval(steps, confidence)
        return result

    counted = [flags for flags in episodes if len(flags)]
    firsts = [first_success(flags) for flags in counted]
    seen = [
        (first + shift, True) if first >= 0 else (len(flags) - 1 + shift, False)
        for first, flags in zip(firsts, counted, strict=True)
    ]
    steps = [step for step, succeeded in seen if succeeded]
    overall: dict[str, Any] = summary(episodes)
    curves = {
        "median": float(np.median(steps)) if steps else nan,
        "survival": np.array(kaplan_meier(seen, max_steps)),
        "already_successful": sum(step == 0 for step in steps),
    }
    if num_tasks is None or tasks is None:
        return overall | curves
    per_task = [
        summary([flags for flags, t in zip(episodes, tasks, strict=True) if t == task])
        for task in range(num_tasks)
    ]
    if average == "macro":
        for name in ("mean", "reached", "restricted_mean"):
            overall[name] = mean_of([row[name] for row in per_task if not isnan(row[name])])
        if confidence is not None:
            present = [row for row in per_task if not isnan(row["mean"])]
            overall["low"], overall["high"] = mover(
                [row["mean"] for row in present], [(row["low"], row["high"]) for row in present]
            )
    tasks_apart = {f"task_{name}": np.array([row[name] for row in per_task]) for name in overall}
    return overall | curves | tasks_apart


# ---------------------------------------------------------------------------- two policies


def mcnemar(only_a: int, only_b: int) -> tuple[float, float]:
    """Two-sided p-values, exact and mid-p, summed term by term."""
    n, least = only_a + only_b, min(only_a, only_b)
    if n == 0:
        return 1.0, 1.0
    tail = sum(comb(n, k) for k in range(least + 1)) / 2**n
    mass = comb(n, least) / 2**n
    return min(1.0, 2 * tail), min(1.0, 2 * tail - mass)


def paired_interval(
    only_a: int, only_b: int, both: int, neither: int, confidence: float = 0.95
) -> Bounds:
    """Newcombe's interval for paired rates, a minus b."""
    n = only_a + only_b + both + neither
    if n == 0:
        return -1.0, 1.0
    p_a, p_b = (both + only_a) / n, (both + only_b) / n
    low_a, high_a = wilson_interval(both + only_a, n, confidence)
    low_b, high_b = wilson_interval(both + only_b, n, confidence)
    margins = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
    cross = both * neither - only_a * only_b
    phi = 0.0
    if margins and cross < 0:
        phi = cross / sqrt(margins)
    elif margins and cross > n / 2:
        phi = (cross - n / 2) / sqrt(margins)
    down, up = p_a - low_a, high_b - p_b
    low = p_a - p_b - sqrt(max(0.0, down**2 - 2 * phi * down * up + up**2))
    up, down = high_a - p_a, p_b - low_b
    high = p_a - p_b + sqrt(max(0.0, up**2 - 2 * phi * up * down + down**2))
    return low, high


def newcombe_interval(k1: int, n1: int, k2: int, n2: int, confidence: float = 0.95) -> Bounds:
    """Newcombe's interval for independent rates; without trials the rate may be anything."""
    (low1, high1), (low2, high2) = (
        wilson_interval(k, n, confidence) for k, n in ((k1, n1), (k2, n2))
    )
    if not n1 or not n2:
        return low1 - high2, high1 - low2
    p1, p2 = k1 / n1, k2 / n2
    low = p1 - p2 - sqrt((p1 - low1) ** 2 + (high2 - p2) ** 2)
    high = p1 - p2 + sqrt((high1 - p1) ** 2 + (p2 - low2) ** 2)
    return low, high


def compare(pairs: Sequence[tuple[Any, Any]], confidence: float = 0.95) -> dict[str, Any]:
    """The comparison of two policies from the outcomes of every episode."""
    only_a = sum(bool(a) and not b for a, b in pairs)
    only_b = sum(bool(b) and not a for a, b in pairs)
    both = sum(bool(a) and bool(b) for a, b in pairs)
    neither = len(pairs) - only_a - only_b - both
    exact, middle = mcnemar(only_a, only_b)
    low, high = paired_interval(only_a, only_b, both, neither, confidence)
    return {
        "difference": (only_a - only_b) / len(pairs) if pairs else nan,
        "low": low,
        "high": high,
        "p_value": middle,
        "p_exact": exact,
        "n": len(pairs),
        "only_a": only_a,
        "only_b": only_b,
        "both": both,
        "neither": neither,
    }


def power_of(n: int, p1: float, p2: float, alpha: float = 0.05) -> float:
    """The chance that the two-sided test of two arms of n episodes finds the difference."""
    effect = abs(2 * asin(sqrt(p1)) - 2 * asin(sqrt(p2))) * sqrt(n / 2)
    z = float(stats.norm.ppf(1 - alpha / 2))
    return float(stats.norm.sf(z - effect) + stats.norm.cdf(-z - effect))


# ---------------------------------------------------------------------------- runs and tasks


def iqm(scores: Any) -> float:
    values = sorted(np.asarray(scores, dtype=np.float64).reshape(-1).tolist())
    trim = len(values) // 4
    return mean_of(values[trim : len(values) - trim])


def optimality_gap(scores: Any, target: float = 1.0) -> float:
    values = np.asarray(scores, dtype=np.float64).reshape(-1).tolist()
    return mean_of([target - min(value, target) for value in values])


def probability_of_improvement(x: Any, y: Any) -> float:
    """The chance that a run of x beats one of y on the same task; ties count half."""
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    chances = []
    for task in range(first.shape[1]):
        wins = [
            1.0 if a > b else 0.5 if a == b else 0.0
            for a in first[:, task]
            for b in second[:, task]
        ]
        chances.append(mean_of(wins))
    return mean_of(chances)


def bootstrap_means(
    scores: Any, statistic: Callable[[Any], float], resamples: int, seed: int
) -> list[float]:
    """Statistics of runs drawn anew within every task, by another generator than ours."""
    values, rng = np.asarray(scores, dtype=np.float64), np.random.default_rng(seed)
    runs, tasks = values.shape
    drawn = []
    for _ in range(resamples):
        columns = [values[rng.integers(0, runs, runs), task] for task in range(tasks)]
        drawn.append(statistic(np.stack(columns, 1)))
    return drawn
