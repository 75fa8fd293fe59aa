"""Curves as figures, for the loggers that take figures."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any


def log_figures(
    loggers: Iterable[Any],
    results: Mapping[str, Any],
    axes: Mapping[str, tuple[str, ...]],
    step: int,
) -> None:
    """Draw every curve over time among `results` into every logger that takes figures.

    Figures are an extra: without matplotlib there are none, and a warning says so.
    """
    drawers = [drawer for drawer in map(_drawer, loggers) if drawer is not None]
    along = {n: v for n, v in results.items() if axes.get(n) == ("T",)}
    curves = {n: v for n, v in along.items() if v.is_floating_point() and v.numel()}
    if not drawers or not curves:
        return
    from dynmetrics.plot import plot_curve

    for name, value in curves.items():
        try:
            figure = plot_curve({name: value})
        except ImportError as error:
            warnings.warn(f"no figures in the logger: {error}", UserWarning, stacklevel=2)
            return
        for draw in drawers:
            draw(name, figure, step)
        figure.clear()


def _drawer(logger: Any) -> Any:
    """How a logger takes a figure: TensorBoard by `add_figure`, Weights & Biases as an image."""
    if hasattr(logger, "log_image"):
        return lambda name, figure, step: logger.log_image(name, [figure], step=step)
    experiment: Any = getattr(logger, "experiment", None)
    if hasattr(experiment, "add_figure"):
        return lambda name, figure, step: experiment.add_figure(name, figure, step)
    return None
