"""One look for all figures: colours that colour-blind people tell apart, quiet axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

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


def line_style(i: int) -> dict[str, Any]:
    """The colour and, once the colours are used up, the dashes of the i-th line."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": LINES[i // len(COLOURS) % len(LINES)]}


def array_of(value: Any) -> Any:
    """A tensor, array or list as a float64 NumPy array on the host."""
    tensor = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.float64)
    return tensor.detach().to("cpu", torch.float64).numpy()


def curves_among(results: Mapping[str, Any]) -> dict[str, Any]:
    """The real-valued vectors among results, bounds of intervals left out."""
    bounds = {bound for name in results for bound in band_of(name, results) or ()}
    curves: dict[str, Any] = {}
    for name, value in results.items():
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(value)
        if tensor.ndim == 1 and tensor.is_floating_point() and name not in bounds:
            curves[name] = array_of(tensor)
    return curves


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
