"""Curves over time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dynmetrics.core.checks import describe, refuse
from dynmetrics.plot.style import (
    GREY,
    SHADE,
    array_of,
    band_of,
    check_mapping,
    check_number,
    curves_among,
    line_style,
    new_figure,
    readable,
    set_title,
)


def plot_curve(
    results: Mapping[str, Any] | Any,
    *,
    names: Sequence[str] | None = None,
    dt: float | None = None,
    stimulus: Any = None,
    chance: float | None = None,
    title: str | None = None,
    axis: Any = None,
) -> Any:
    """Curves over time with their intervals, from the result of any temporal metric.

    Args:
        results: what `compute` returned, of a metric or of a suite, or one curve (T,). Entries
            `low` and `high` become the band of their curve.
        names: which curves to draw; by default all real-valued ones.
        dt: milliseconds for each timestep; by default time is counted in timesteps.
        stimulus: (T,), True while the stimulus is on; shaded.
        chance: a level to mark.
        title: above the picture.
        axis: a matplotlib axis to draw on instead of a new figure.

    Returns:
        The matplotlib figure. Undefined (NaN) timesteps are gaps.

    Raises:
        ValueError: if there is no curve, or a name is not among them; and for a time, a level or a
            stimulus that is none.
        ImportError: without matplotlib, naming the extra "plot".

    Example:
        >>> import torch
        >>> from dynmetrics.plot import plot_curve
        >>> figure = plot_curve({"accuracy": torch.tensor([0.1, 0.8, 0.9])}, dt=2.0)
        >>> figure.axes[0].get_xlabel()
        'time (ms)'
    """
    if not isinstance(results, Mapping):
        results = {"value": array_of("results", results, 1)}
    check_mapping("results", results)
    curves = curves_among(results)
    if not curves:
        raise refuse("results", "curves of shape (T,)", describe(results))
    chosen = _chosen(names, curves)
    if axis is None:
        _, [[axis]] = new_figure(5.5, 3.2)
    _draw_background(axis, stimulus, chance, dt)
    for i, name in enumerate(chosen):
        steps = _times(len(curves[name]), dt)
        marker = "o" if len(steps) <= 30 else None
        axis.plot(steps, curves[name], marker=marker, ms=3, label=readable(name), **line_style(i))
        bounds = band_of(name, results)
        if bounds:
            low, high = (array_of(bound, results[bound], 1) for bound in bounds)
            colour = line_style(i)["color"]
            axis.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
    axis.set_xlabel("timestep" if dt is None else "time (ms)")
    if len(chosen) == 1:
        axis.set_ylabel(readable(chosen[0]))
    else:
        axis.legend(frameon=False, fontsize=8)
    set_title(axis, title)
    return axis.figure


def _chosen(names: Sequence[str] | None, curves: Mapping[str, Any]) -> list[str]:
    if names is None:
        return list(curves)
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise refuse("names", f"a sequence of names among {list(curves)}", describe(names))
    unknown = [name for name in names if name not in curves]
    if unknown:
        raise refuse("names", f"curves among {list(curves)}", f"{unknown}")
    return list(dict.fromkeys(names))


def plot_layer_responses(
    results: Mapping[str, Any],
    measure: str = "response_avg",
    *,
    dt: float | None = None,
    stimulus: Any = None,
) -> Any:
    """Response over time, a panel for each layer, from the result of `LayerResponse`.

    Args:
        results: entries `{layer}_{measure}` (T,), or (C, T) for a line for each class.
        measure: which of the measures.
        dt: milliseconds for each timestep.
        stimulus: (T,), True while the stimulus is on; shaded.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: if no entry has the measure, or one is no curve.
    """
    check_mapping("results", results)
    ending = rf"(?:(.*)_)?{re.escape(str(measure))}"
    matches = {name: re.fullmatch(ending, name) for name in results if measure}
    found = {
        match[1] or "": array_of(name, results[name]) for name, match in matches.items() if match
    }
    for layer, value in found.items():
        if value.ndim not in (1, 2) or not value.size:
            got = f"{layer} of shape {value.shape}"
            raise refuse("results", "responses (T,) or (C, T)", got)
    if not found:
        raise refuse("measure", f"an ending of one of {list(results)}", describe(measure))
    figure, axes = new_figure(5.5, 0.6 + 1.3 * len(found), rows=len(found))
    for i, (layer, value) in enumerate(found.items()):
        axis = axes[i, 0]
        _draw_background(axis, stimulus, None, dt)
        for j, line in enumerate(value.reshape(-1, value.shape[-1])):
            many = value.ndim == 2
            axis.plot(_times(len(line), dt), line, **line_style(j if many else 0), lw=1.2)
        axis.set_ylabel(layer or readable(measure), fontsize=8)
        axis.sharex(axes[0, 0])
    axes[-1, 0].set_xlabel("timestep" if dt is None else "time (ms)")
    figure.suptitle(readable(measure), fontsize=10)
    return figure


def plot_survival(results: Mapping[str, Any], *, title: str | None = None) -> Any:
    """The share of episodes not yet successful after every step, from `StepsToSuccess`."""
    check_mapping("results", results)
    if "survival" not in results:
        raise refuse("results", "an entry 'survival'", describe(results))
    survival = array_of("survival", results["survival"], 1)
    figure, [[axis]] = new_figure(5.0, 3.0)
    axis.step(range(len(survival)), survival, where="post", **line_style(0))
    axis.set(xlabel="steps", ylabel="not yet successful", ylim=(0, 1.02))
    set_title(axis, title)
    return figure


def _times(n: int, dt: float | None) -> Any:
    import numpy as np

    return np.arange(n) * (1.0 if dt is None else dt)


def _draw_background(axis: Any, stimulus: Any, chance: float | None, dt: float | None) -> None:
    check_number("dt", dt, above=0.0)
    check_number("chance", chance)
    if stimulus is not None:
        on = array_of("stimulus", stimulus, 1) > 0
        half = 0.5 if dt is None else 0.5 * dt
        first = True
        for time, shown in zip(_times(len(on), dt), on, strict=True):
            if shown:
                label = "shown" if first else None
                axis.axvspan(time - half, time + half, color=SHADE, zorder=0, lw=0, label=label)
                first = False
    if chance is not None:
        axis.axhline(chance, color=GREY, linewidth=0.8, linestyle=":", label="chance")
