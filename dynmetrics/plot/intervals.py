"""Estimates with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynmetrics.core.checks import describe, refuse
from dynmetrics.plot.style import COLOURS, GREY, array_of, new_figure


def plot_interval(
    results: Mapping[str, Any],
    *,
    labels: Any = None,
    reference: float | None = None,
    title: str | None = None,
) -> Any:
    """Rates or differences with their intervals, one line each.

    Args:
        results: the result of `SuccessRate` (with tasks, a line for each task and one for all) or
            of `PolicyComparison`; or a mapping from a label to (value, low, high).
        labels: names of the tasks.
        reference: a value to mark, such as 0 for a difference.
        title: above the picture.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: if no interval is found.
    """
    lines = _lines(results, labels)
    figure, [[axis]] = new_figure(5.0, 0.9 + 0.35 * len(lines))
    for i, (value, low, high) in enumerate(lines.values()):
        axis.plot([low, high], [i, i], color=COLOURS[0], linewidth=2, solid_capstyle="butt")
        axis.plot([value], [i], "o", color=COLOURS[0], ms=5)
    axis.set_yticks(range(len(lines)), list(lines))
    axis.set_ylim(len(lines) - 0.5, -0.5)
    if reference is not None:
        axis.axvline(reference, color=GREY, linewidth=0.8, linestyle=":")
    if title:
        axis.set_title(title, fontsize=10)
    return figure


def _lines(results: Mapping[str, Any], labels: Any) -> dict[str, tuple[float, float, float]]:
    for headline in ("rate", "difference", "value"):
        if {headline, "low", "high"} <= set(results):
            lines = {headline: _triple(results[headline], results["low"], results["high"])}
            if "task_rate" in results:
                parts = (results["task_rate"], results["task_low"], results["task_high"])
                tasks = list(zip(*map(array_of, parts), strict=True))
                names = labels or [f"task {i}" for i in range(len(tasks))]
                lines |= {str(n): _triple(*task) for n, task in zip(names, tasks, strict=True)}
            return lines
    try:
        return {str(name): _triple(*value) for name, value in results.items()}
    except TypeError as error:
        expected = "a result with low and high, or label -> (value, low, high)"
        raise refuse("results", expected, describe(dict(results))) from error


def _triple(value: Any, low: Any, high: Any) -> tuple[float, float, float]:
    return float(value), float(low), float(high)
