"""Curves as figures, for the loggers that take figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def log_figures(
    loggers: Iterable[Any],
    results: Mapping[str, Any],
    axes: Mapping[str, tuple[str, ...]],
    step: int,
) -> None:
    """Draw every curve over time among `results` into every logger that takes figures."""
    drawers = [drawer for drawer in map(_drawer, loggers) if drawer is not None]
    curves = {n: v for n, v in results.items() if axes.get(n) == ("T",) and v.is_floating_point()}
    if not drawers or not curves:
        return
    from dynmetrics.plot import plot_curve

    for name, value in curves.items():
        figure = plot_curve({name: value})
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
