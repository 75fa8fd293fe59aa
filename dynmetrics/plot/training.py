"""The progress of training: what MATLAB's training window shows, and the curve over time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dynmetrics.plot.style import COLOURS, SHADE, array_of, new_figure, readable


def plot_training(history: Any, *, names: Iterable[str] | None = None, smooth: float = 0.9) -> Any:
    """Training and validation over steps: losses, metrics, and the last curve over time.

    Raw values of batches are pale, their exponential average is drawn over them, values of whole
    epochs are points; epochs are shaded in turn; the stop reason stands below.

    Args:
        history: a `History`.
        names: the results to draw without their stage, such as "accuracy"; by default those with a
            direction, else all scalars.
        smooth: the weight of the past in the average of raw values, from 0 to 1.

    Returns:
        The matplotlib figure.
    """
    losses = [name for name in _stems(history) if name.endswith("loss")]
    metrics = list(names) if names is not None else _default_metrics(history, losses)
    curves = _last_curves(history)
    panels = [panel for panel in ("losses" if losses else "", "metrics", "curves" if curves else "")
              if panel]  # fmt: skip
    figure, axes = new_figure(6.5, 0.5 + 2.3 * len(panels), rows=len(panels))
    for panel, axis in zip(panels, axes[:, 0], strict=True):
        if panel == "curves":
            _draw_curves(axis, curves)
            continue
        _shade_epochs(axis, history)
        for i, name in enumerate(losses if panel == "losses" else metrics):
            _draw_history(axis, history, name, COLOURS[i % len(COLOURS)], smooth)
        axis.set_xlabel("step")
        axis.set_ylabel("loss" if panel == "losses" else "")
        axis.legend(frameon=False, fontsize=7)
    if history.stop_reason:
        figure.supxlabel(f"Stopped: {history.stop_reason}", fontsize=8)
    return figure


def _stems(history: Any) -> list[str]:
    """Names of scalar results without their stage."""
    names = [name for record in history for name, value in record.results.items()
             if not isinstance(value, list)]  # fmt: skip
    return list(dict.fromkeys(name.partition("_")[2] for name in names))


def _default_metrics(history: Any, losses: list[str]) -> list[str]:
    directed = {name.partition("_")[2] for name, up in history.directions.items() if up is not None}
    stems = [name for name in _stems(history) if name not in losses]
    return [name for name in stems if name in directed] or stems


def _draw_history(axis: Any, history: Any, stem: str, colour: str, smooth: float) -> None:
    """Raw and smoothed values of batches, and the values of epochs by stage."""
    raw = _points(history, f"train_{stem}", batch=True)
    if raw:
        steps, values = zip(*raw, strict=True)
        axis.plot(steps, values, color=colour, alpha=0.3, linewidth=0.8)
        axis.plot(steps, _smoothed(values, smooth), color=colour, linewidth=1.2)
    styles = {"train": ("" if raw else "-", "s"), "val": ("--", "o"), "test": ("", "D")}
    for stage, (line, marker) in styles.items():
        points = _points(history, f"{stage}_{stem}", batch=False)
        if points:
            steps, values = zip(*points, strict=True)
            label = f"{stage} {readable(stem)}"
            axis.plot(steps, values, line, marker=marker, ms=4, color=colour, label=label)


def _points(history: Any, name: str, *, batch: bool) -> list[tuple[int, float]]:
    chosen = [record for record in history if (record.stage == "batch") is batch]
    return [(r.step, r.results[name]) for r in chosen if name in r.results]


def _smoothed(values: Iterable[float], smooth: float) -> list[float]:
    """The exponential average, corrected for its start."""
    total, weight, result = 0.0, 0.0, []
    for value in values:
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


def _last_curves(history: Any) -> dict[str, Any]:
    """The newest curve over time of every name, validation before training."""
    curves: dict[str, Any] = {}
    for record in history:
        names = [name for name, axis in record.axes.items() if axis == "t"]
        for name in names:
            stem = name.rpartition("_")[2]
            if record.stage != "train" and stem not in ("low", "high", "valid", "nonfinite"):
                curves[name] = array_of(record.results[name])
    return curves


def _draw_curves(axis: Any, curves: dict[str, Any]) -> None:
    for i, (name, values) in enumerate(list(curves.items())[: len(COLOURS)]):
        marker = "o" if len(values) <= 30 else None
        axis.plot(values, marker=marker, ms=3, color=COLOURS[i], label=readable(name))
    axis.set_xlabel("timestep")
    axis.legend(frameon=False, fontsize=7)
