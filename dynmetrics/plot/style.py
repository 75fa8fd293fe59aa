"""One look for all figures: colours that colour-blind people tell apart, quiet axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import describe, refuse
from dynmetrics.core.optional import optional

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, dark colours first."""

LINES = ("-", "--", "-.", ":")
GREY = "#777777"
SHADE = "#F0F0F0"


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """A matplotlib figure without pyplot, so that no window and no global state is involved."""
    figure = optional("matplotlib.figure", "plot").Figure(
        figsize=(width, height), layout="constrained", dpi=150
    )
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    return figure, axes


def picture_suffixes() -> list[str]:
    """The endings of files that matplotlib writes."""
    canvas = optional("matplotlib.backend_bases", "plot").FigureCanvasBase
    return sorted(f".{kind}" for kind in canvas.get_supported_filetypes())


def line_style(i: int) -> dict[str, Any]:
    """The colour and, once the colours are used up, the dashes of the i-th line."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": LINES[i // len(COLOURS) % len(LINES)]}


def array_of(argument: str, value: Any, ndim: int | None = None) -> Any:
    """A tensor, array or list as a float64 NumPy array on the host.

    Raises:
        ValueError: for anything but real numbers, and for another number of axes than `ndim`.
    """
    import numpy as np

    array = _numbers(value)
    if array is None:
        raise refuse(argument, "real numbers", describe(value))
    if ndim is not None and (array.ndim != ndim or not array.size):
        kind = {0: "a number", 1: "a vector", 2: "a matrix"}[ndim]
        raise refuse(argument, f"{kind} that is not empty", describe(value))
    return array.astype(np.float64)


def _numbers(value: Any) -> Any:
    """An array of real numbers, or None."""
    import numpy as np

    if isinstance(value, Tensor):
        value = value.detach().cpu()
        # NumPy knows no bfloat16.
        value = value.to(torch.float64) if value.is_floating_point() else value
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):
        return None  # nested lists of different lengths
    return array if array.dtype.kind in "biuf" else None


def curves_among(results: Mapping[str, Any]) -> dict[str, Any]:
    """The real-valued vectors among results, bounds of intervals left out."""
    bounds = {bound for name in results for bound in band_of(name, results) or ()}
    arrays = {name: _numbers(value) for name, value in results.items() if name not in bounds}
    return {
        name: array.astype(float)
        for name, array in arrays.items()
        if array is not None and array.ndim == 1 and array.size and array.dtype.kind == "f"
    }


def check_mapping(argument: str, value: Any) -> None:
    """Refuse what is not the result of a metric with several entries."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise refuse(argument, "a mapping from names to results", describe(value))


def check_number(argument: str, value: Any, *, above: float = -math.inf) -> None:
    """Refuse anything but None or a finite number greater than `above`."""
    if value is None:
        return
    array = _numbers(value)
    if array is None or array.ndim or not (above < float(array) < math.inf):
        bound = "" if above == -math.inf else f" above {above:g}"
        raise refuse(argument, f"a number{bound}, or None", describe(value))


def check_labels(argument: str, labels: Any, n: int) -> list[str]:
    """`n` labels as strings; they may repeat."""
    if isinstance(labels, (str, Mapping)) or not isinstance(labels, Iterable):
        raise refuse(argument, f"{n} labels", describe(labels))
    named = [str(label) for label in labels]
    if len(named) != n:
        raise refuse(argument, f"{n} labels", f"{len(named)}")
    return named


def set_title(axis: Any, title: str | None) -> None:
    """The title above an axis, if there is one."""
    if title is not None and not isinstance(title, str):
        raise refuse("title", "a string or None", describe(title))
    if title:
        axis.set_title(title, fontsize=10)


def band_of(name: str, results: Mapping[str, Any]) -> tuple[str, str] | None:
    """The entries that bound the interval of the curve `name`, if there are any."""
    prefix, _, last = name.rpartition("_")
    prefix += "_" if prefix else ""
    for ending in (f"_{last}", ""):
        bounds = (f"{prefix}low{ending}", f"{prefix}high{ending}")
        if name not in bounds and all(bound in results for bound in bounds):
            return bounds
    return None


def readable(name: str) -> str:
    """A result's name as a label."""
    return name.replace("_", " ")
