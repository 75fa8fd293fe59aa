"""Responses of layers by their definition, one sample and timestep at a time."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

import numpy as np

from .accuracy import first_label, labels_over_time
from .row_values import deviation, mean

MEASURES = ("response_avg", "response_std", "spatial_variance", "feature_variance")


def variance(values: Any) -> float:
    """The unbiased variance of all values."""
    flat = [float(v) for v in np.ravel(values)]
    return deviation(flat) ** 2


def measure_of(maps: Any, measure: str, absolute: bool = True) -> float:
    """One measure of the activations (channels, ...) of one sample at one timestep."""
    maps = np.asarray(maps, dtype=np.float64)
    values = [abs(float(v)) if absolute else float(v) for v in maps.ravel()]
    if measure == "response_avg":
        return mean(values)
    if measure == "response_std":
        return deviation(values)
    if measure == "spatial_variance":
        return 0.0 if maps.ndim == 1 else mean([variance(channel) for channel in maps])
    places = maps.reshape(len(maps), -1).T
    return mean([variance(place) for place in places])


def layer_response(
    batches: Sequence[dict[str, Any]],
    measures: Sequence[str] = MEASURES,
    absolute: bool = True,
    num_classes: int | None = None,
    details: bool = False,
) -> dict[str, Any]:
    """The result of LayerResponse for batches of `activations` by layer and `target`."""
    layers = next((list(batch["activations"]) for batch in batches), [""])
    steps = max(
        (a.shape[1] for b in batches for a in b["activations"].values() if len(a)), default=0
    )
    result: dict[str, Any] = {}
    for layer in layers:
        for name in measures:
            entry = f"{layer}_{name}" if layer else name
            cells: dict[tuple[int, int], list[float]] = {}
            for batch in batches:
                activations = np.asarray(batch["activations"][layer], dtype=np.float64)
                groups = _groups(batch.get("target"), len(activations), num_classes)
                for b, t in np.ndindex(activations.shape[:2]):
                    value = measure_of(activations[b, t], name, absolute)
                    cells.setdefault((groups[b], t), []).append(value)
            result.update(_curves(entry, cells, steps, num_classes, details))
    return result


def _groups(target: Any, samples: int, num_classes: int | None) -> list[int]:
    if num_classes is None:
        return [0] * samples
    labels = np.asarray(target)
    rows = labels_over_time(labels, labels.shape[1] if labels.ndim == 2 else 1)
    firsts = [first_label(row) for row in rows]
    return [first if 0 <= first < num_classes else num_classes for first in firsts]


def _curves(
    entry: str, cells: dict[Any, list[float]], steps: int, num_classes: int | None, details: bool
) -> dict[str, Any]:
    def table(statistic: Any) -> Any:
        rows = [
            [statistic(cells.get((group, t), [])) for t in range(steps)]
            for group in range(num_classes or 1)
        ]
        return np.array(rows).reshape(num_classes, steps) if num_classes else np.array(rows[0])

    curves = {entry: table(mean)}
    if details:
        curves[f"{entry}_std"] = table(deviation)
        curves[f"{entry}_n"] = table(len).astype(np.int64)
        if num_classes:
            rest = [mean(cells.get((num_classes, t), [])) for t in range(steps)]
            curves[f"{entry}_no_class"] = np.array(rest) if steps else np.full(0, nan)
    return curves
