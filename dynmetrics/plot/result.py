"""Any result as a picture, by the axes that its metric names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynmetrics.core.checks import describe, refuse
from dynmetrics.plot.curves import plot_curve
from dynmetrics.plot.matrices import plot_rdm, plot_temporal_rsa
from dynmetrics.plot.style import array_of, curves_among, line_style, new_figure, readable


def plot_result(metric: Any, results: Any = None) -> Any:
    """Draw what a metric computes: curves over T as lines, (K, K) as an RDM, the rest fittingly.

    Args:
        metric: any metric of this library; it is asked for its `axes` only.
        results: what its `compute` returned; computed here if not given.

    Returns:
        The matplotlib figure: of the first entries that share their axes and have any.

    Raises:
        ValueError: if all results are scalars, and for what is no metric of this library.
    """
    if not hasattr(metric, "axes") or not callable(getattr(metric, "compute", None)):
        raise refuse("metric", "a metric with axes", describe(metric))
    results = metric.compute() if results is None else results
    letters_of = metric.axes
    if isinstance(letters_of, Mapping) is not isinstance(results, Mapping):
        raise refuse("results", f"what {type(metric).__name__} computes", describe(results))
    axes = letters_of if isinstance(letters_of, Mapping) else {"value": letters_of}
    values = dict(results) if isinstance(results, Mapping) else {"value": results}
    drawable = {name: letters for name, letters in axes.items() if letters and name in values}
    if not drawable:
        raise refuse("metric", "a result with an axis", describe(dict(values)))
    letters = next(iter(drawable.values()))
    chosen = {n: values[n] for n, own in drawable.items() if own == letters}
    first = next(iter(chosen.values()))
    if letters == ("T",) and curves_among(chosen):
        return plot_curve(chosen)
    if letters == ("K", "K"):
        return plot_rdm(first)
    if letters == ("T", "Tb"):
        return plot_temporal_rsa(first)
    if len(letters) == 1:
        return _plot_bars(chosen, letters[0])
    if len(letters) == 2 and letters[1] == "T":
        return _plot_lines(next(iter(chosen)), first)
    return plot_temporal_rsa(array_of("results", first).reshape(-1, first.shape[-1]))


def _plot_bars(chosen: Mapping[str, Any], letter: str) -> Any:
    figure, [[axis]] = new_figure(5.0, 3.0)
    for i, (name, value) in enumerate(chosen.items()):
        heights = array_of(name, value)
        places = [place + 0.8 * i / len(chosen) for place in range(len(heights))]
        axis.bar(places, heights, 0.8 / len(chosen), label=readable(name), **_fill(i))
    axis.set_xlabel("timestep" if letter == "T" else letter)
    axis.legend(frameon=False, fontsize=8)
    return figure


def _plot_lines(name: str, value: Any) -> Any:
    figure, [[axis]] = new_figure(5.5, 3.2)
    for i, line in enumerate(array_of(name, value)):
        axis.plot(line, linewidth=1, label=str(i), **line_style(i))
    axis.set(xlabel="timestep", ylabel=readable(name))
    if len(value) <= 10:
        axis.legend(frameon=False, fontsize=7, ncols=2)
    return figure


def _fill(i: int) -> dict[str, Any]:
    return {"color": line_style(i)["color"]}
