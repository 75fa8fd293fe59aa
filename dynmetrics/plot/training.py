"""The progress of training: what MATLAB's training window shows, and the curve over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dynmetrics.core.checks import describe, refuse
from dynmetrics.plot.style import (
    COLOURS,
    SHADE,
    array_of,
    band_of,
    line_style,
    new_figure,
    readable,
)

_BATCH = "batch"


def plot_training(history: Any, *, names: Iterable[str] | None = None, smooth: float = 0.9) -> Any:
    """Training and validation over steps: losses, metrics, and the last curve over time.

    Of several runs the last one is drawn.
    Raw values of batches are pale, their exponential average is drawn over them, values of whole
    epochs are points; epochs are shaded in turn; the stop reason stands below.

    Args:
        history: a `History`.
        names: the results to draw without their stage, such as "accuracy"; by default those with a
            direction, else all scalars.
        smooth: the weight of the past in the average of raw values, from 0 to below 1.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: for a history without a record, a name without a result, and a weight beyond its
            range.
    """
    records = _last_run(history)
    if not (isinstance(smooth, (int, float)) and 0.0 <= smooth < 1.0):
        raise refuse("smooth", "a number from 0 to below 1", describe(smooth))
    stems = _stems(records)
    losses = [name for name in stems if name.endswith("loss")]
    stages = {record.stage for record in records}
    directed = {
        _stem(name, stage) for name, up in history.directions.items() for stage in stages
        if up is not None
    }  # fmt: skip
    metrics = _chosen(names, stems, losses, directed)
    curves = _last_curves(records)
    found = {"losses": losses, "metrics": metrics, "curves": curves}
    panels = [panel for panel, content in found.items() if content]
    if not panels:
        raise refuse("history", "a result to draw", describe([r.results for r in records]))
    figure, axes = new_figure(6.5, 0.5 + 2.3 * len(panels), rows=len(panels))
    for panel, axis in zip(panels, axes[:, 0], strict=True):
        if panel == "curves":
            _draw_curves(axis, curves)
            continue
        _shade_epochs(axis, records)
        for i, name in enumerate(losses if panel == "losses" else metrics):
            _draw_history(axis, records, name, line_style(i), smooth)
        axis.set_xlabel("step")
        axis.set_ylabel("loss" if panel == "losses" else "")
        axis.legend(frameon=False, fontsize=7)
    if history.stop_reason:
        figure.supxlabel(f"Stopped: {history.stop_reason}", fontsize=8)
    return figure


def _last_run(history: Any) -> list[Any]:
    if not all(hasattr(history, name) for name in ("records", "directions", "stop_reason")):
        raise refuse("history", "a History", describe(history))
    if not history.records:
        raise refuse("history", "at least one record", "none")
    runs = [record.run for record in history.records]
    last = history.run if history.run in runs else runs[-1]
    return [record for record in history.records if record.run == last]


def _stem(name: str, stage: str) -> str:
    """A result's name without its stage."""
    return name.removeprefix(f"{'train' if stage == _BATCH else stage}_")


def _stems(records: Iterable[Any]) -> list[str]:
    """Names of scalar results without their stage."""
    names = [_stem(name, record.stage) for record in records
             for name, value in record.results.items() if not isinstance(value, list)]  # fmt: skip
    return list(dict.fromkeys(names))


def _chosen(
    names: Iterable[str] | None, stems: list[str], losses: list[str], directed: set[str]
) -> list[str]:
    others = [name for name in stems if name not in losses]
    if names is None:
        return [name for name in others if name in directed] or others
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise refuse("names", "names of results without their stage", describe(names))
    chosen = list(dict.fromkeys(names))
    unknown = [name for name in chosen if name not in stems]
    if unknown:
        raise refuse("names", f"names among {stems}", f"{unknown}")
    return chosen


def _draw_history(
    axis: Any, records: Iterable[Any], stem: str, style: Mapping[str, Any], smooth: float
) -> None:
    """Raw and smoothed values of batches, and the values of epochs by stage."""
    points: dict[str, list[tuple[int, float]]] = {}
    for record in records:
        for name, value in record.results.items():
            if not isinstance(value, list) and _stem(name, record.stage) == stem:
                points.setdefault(record.stage, []).append((record.step, value))
    colour = style["color"]
    raw = points.pop(_BATCH, [])
    if raw:
        steps, values = zip(*raw, strict=True)
        axis.plot(steps, values, color=colour, alpha=0.3, linewidth=0.8)
        label = f"train {readable(stem)}, batches"
        axis.plot(steps, _smoothed(values, smooth), color=colour, linewidth=1.2, label=label)
    styles = {"train": ("" if raw else "-", "s"), "val": ("--", "o"), "test": ("", "D")}
    for stage in sorted(points, key=lambda stage: [*styles, stage].index(stage)):
        steps, values = zip(*points[stage], strict=True)
        line, marker = styles.get(stage, (":", "^"))
        label = f"{stage} {readable(stem)}"
        axis.plot(steps, values, line, marker=marker, ms=4, color=colour, label=label)


def _smoothed(values: Iterable[float], smooth: float) -> list[float]:
    """The exponential average, corrected for its start; undefined values count for nothing."""
    total, weight, result = 0.0, 0.0, []
    for value in values:
        if math.isfinite(value):
            total = smooth * total + (1 - smooth) * value
            weight = smooth * weight + (1 - smooth)
        result.append(total / weight if weight else value)
    return result


def _shade_epochs(axis: Any, history: Any) -> None:
    ends: dict[int, int] = {}
    for record in history:
        if record.stage != "test":
            ends[record.epoch] = max(record.step, ends.get(record.epoch, 0))
    start = 0
    for epoch, end in sorted(ends.items()):
        if epoch % 2 and end > start:
            axis.axvspan(start, end, color=SHADE, zorder=0, linewidth=0)
        start = end


def _last_curves(records: Iterable[Any]) -> dict[str, Any]:
    """The newest curve over time of every name, validation before training."""
    curves: dict[str, Any] = {}
    for record in records:
        if record.stage == "train":
            continue
        results = record.results
        bounds = {bound for name in results for bound in band_of(name, results) or ()}
        for name, axis in record.axes.items():
            counted = name.rpartition("_")[2] in ("valid", "nonfinite")
            if axis == "t" and not counted and name not in bounds:
                curves[name] = array_of(name, results[name])
    return curves


def _draw_curves(axis: Any, curves: dict[str, Any]) -> None:
    for i, (name, values) in enumerate(list(curves.items())[: len(COLOURS)]):
        marker = "o" if len(values) <= 30 else None
        axis.plot(values, marker=marker, ms=3, color=COLOURS[i], label=readable(name))
    axis.set_xlabel("timestep")
    axis.legend(frameon=False, fontsize=7)
