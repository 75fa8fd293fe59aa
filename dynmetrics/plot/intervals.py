"""Estimates with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynmetrics.core.checks import describe, refuse
from dynmetrics.plot.style import (
    COLOURS,
    GREY,
    array_of,
    check_labels,
    check_mapping,
    check_number,
    new_figure,
    set_title,
)


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
        labels: names of the tasks, in their order; they may repeat.
        reference: a value to mark, such as 0 for a difference.
        title: above the picture.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: if no interval is found, or the labels do not fit the tasks.
    """
    check_mapping("results", results)
    check_number("reference", reference)
    lines = _lines(results, labels)
    figure, [[axis]] = new_figure(5.0, 0.9 + 0.35 * len(lines))
    for i, (_, value, low, high) in enumerate(lines):
        axis.plot([low, high], [i, i], color=COLOURS[0], linewidth=2, solid_capstyle="butt")
        axis.plot([value], [i], "o", color=COLOURS[0], ms=5)
    axis.set_yticks(range(len(lines)), [line[0] for line in lines])
    axis.set_ylim(len(lines) - 0.5, -0.5)
    if reference is not None:
        axis.axvline(reference, color=GREY, linewidth=0.8, linestyle=":")
    set_title(axis, title)
    return figure


Line = tuple[str, float, float, float]
"""A label, and the value between its bounds."""


def _lines(results: Mapping[str, Any], labels: Any) -> list[Line]:
    for headline in ("rate", "difference", "value"):
        if {headline, "low", "high"} <= set(results):
            whole = [results[name] for name in (headline, "low", "high")]
            return [_line(headline, whole), *_tasks(results, labels)]
    if labels is not None:
        raise refuse("labels", "None where there are no tasks", describe(labels))
    if not results:
        raise refuse("results", _EXPECTED, describe(results))
    return [_line(name, value) for name, value in results.items()]


def _tasks(results: Mapping[str, Any], labels: Any) -> list[Line]:
    names = ("task_rate", "task_low", "task_high")
    given = [name for name in names if name in results]
    if not given:
        if labels is not None:
            raise refuse("labels", "None where there are no tasks", describe(labels))
        return []
    if len(given) < len(names):
        raise refuse("results", f"all of {names}", describe(results))
    parts = [array_of(name, results[name], 1) for name in names]
    n = len(parts[0])
    if {len(part) for part in parts} != {n}:
        raise refuse("results", f"{n} tasks in all of {names}", f"{[len(part) for part in parts]}")
    texts = [f"task {i}" for i in range(n)] if labels is None else check_labels("labels", labels, n)
    return [_line(text, task) for text, task in zip(texts, zip(*parts, strict=True), strict=True)]


_EXPECTED = "a result with low and high, or label -> (value, low, high)"


def _line(label: str, triple: Any) -> Line:
    try:
        value, low, high = map(float, triple)
    except (TypeError, ValueError, RuntimeError) as error:
        raise refuse("results", _EXPECTED, f"{label!r} with {describe(triple)}") from error
    return label, value, low, high
