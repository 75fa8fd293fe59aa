"""Confidence, calibration, latency and reaction time by their definitions, one row at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isnan, nan
from typing import Any, NamedTuple

import numpy as np

from .accuracy import first_label, labels_over_time, mask_over_time


class Row(NamedTuple):
    """One timestep of one sample."""

    sample: int
    t: int
    scores: list[float]
    label: int
    """-1 where there is none, or where the mask is False."""
    first: int
    """The first label of the sample, whatever the mask."""
    counted: bool


def rows_of(batches: Iterable[Sequence[Any]]) -> Iterator[Row]:
    """The rows of batches (logits, labels[, mask]), samples numbered through."""
    sample = -1
    for batch in batches:
        logits, labels, mask = (*batch, None)[:3]
        logits = np.asarray(logits, dtype=np.float64)
        n, steps = logits.shape[:2]
        labels = labels_over_time(labels, steps)
        mask = mask_over_time(mask, n, steps)
        for b in range(n):
            sample += 1
            for t in range(steps):
                counted = bool(mask[b, t])
                label = int(labels[b, t]) if counted else -1
                scores = [float(s) for s in logits[b, t]]
                yield Row(sample, t, scores, label, first_label(labels[b]), counted)


def samples_of(batches: Iterable[Sequence[Any]]) -> list[list[Row]]:
    """The rows of every sample."""
    samples: dict[int, list[Row]] = {}
    for row in rows_of(batches):
        samples.setdefault(row.sample, []).append(row)
    return list(samples.values())


def softmax(scores: list[float]) -> list[float]:
    """Probabilities; all NaN if a score is."""
    if any(map(isnan, scores)):
        return [nan] * len(scores)
    powers = [float(np.exp(s - max(scores))) for s in scores]
    return [p / sum(powers) for p in powers]


def guess_of(scores: list[float]) -> int:
    """The lowest index of the largest score; -1 if a score is NaN."""
    return -1 if any(map(isnan, scores)) else scores.index(max(scores))


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else nan


def deviation(values: list[float]) -> float:
    """The unbiased standard deviation."""
    if len(values) < 2:
        return nan
    return float(np.sqrt(sum((v - mean(values)) ** 2 for v in values) / (len(values) - 1)))


def steps_of(rows: list[Row]) -> int:
    return max((row.t for row in rows), default=-1) + 1


# ---------------------------------------------------------------------------- confidence


def confidence_of(row: Row, kind: str, invalid: str) -> list[float]:
    """No value or one: what the row adds to the mean of a kind."""
    if not row.counted:
        return []
    probabilities = softmax(row.scores)
    if kind == "guess":
        return [float(np.max(probabilities))]
    index = row.label if kind == "label" else row.first
    if 0 <= index < len(probabilities):
        return [probabilities[index]]
    return [0.0] if invalid == "zero" else []


def temporal_confidence(
    batches: Iterable[Sequence[Any]],
    kinds: Sequence[str] = ("guess", "label", "first_label"),
    invalid: str = "zero",
    num_classes: int | None = None,
    details: bool = False,
) -> dict[str, Any]:
    """The result of TemporalConfidence."""
    rows = list(rows_of(batches))
    steps = range(steps_of(rows))

    def values(kind: str, t: int | None = None, group: int | None = None) -> list[float]:
        chosen = [
            row
            for row in rows
            if (t is None or row.t == t) and (group is None or _group(row, num_classes) == group)
        ]
        return [v for row in chosen for v in confidence_of(row, kind, invalid)]

    def table(statistic: Any) -> Any:
        if num_classes is None:
            return np.array([statistic(t, None) for t in steps])
        table = [[statistic(t, group) for t in steps] for group in range(num_classes)]
        return np.array(table).reshape(num_classes, len(steps))

    result: dict[str, Any] = {f"overall_{kind}": mean(values(kind)) for kind in kinds}
    for kind in kinds:
        result[kind] = table(lambda t, g, kind=kind: mean(values(kind, t, g)))
    result["valid"] = table(
        lambda t, g: sum(
            row.t == t
            and 0 <= row.label < len(row.scores)
            and g in (None, _group(row, num_classes))
            for row in rows
        )
    ).astype(np.int64)
    for kind in kinds if details else ():
        result[f"{kind}_std"] = table(lambda t, g, kind=kind: deviation(values(kind, t, g)))
        number = table(lambda t, g, kind=kind: len(values(kind, t, g)))
        result[f"{kind}_n"] = number.astype(np.int64)
        if num_classes is not None:
            rest = [mean(values(kind, t, num_classes)) for t in steps]
            result[f"{kind}_no_class"] = np.array(rest)
    return result


def _group(row: Row, num_classes: int | None) -> int | None:
    if num_classes is None:
        return None
    return row.first if 0 <= row.first < num_classes else num_classes


# ---------------------------------------------------------------------------- calibration


def calibration_error(rows: list[Row], n_bins: int, norm: str) -> float:
    """Confidence against accuracy in bins (k / n_bins, (k + 1) / n_bins] of the labelled rows."""
    pairs = [
        (float(np.max(softmax(row.scores))), guess_of(row.scores) == row.label)
        for row in rows
        if row.label >= 0
    ]
    if not pairs or any(isnan(confidence) for confidence, _ in pairs):
        return nan
    gaps = []
    for k in range(n_bins):
        inside = [pair for pair in pairs if k / n_bins < pair[0] <= (k + 1) / n_bins]
        if inside:
            gap = abs(mean([float(hit) for _, hit in inside]) - mean([c for c, _ in inside]))
            gaps.append((len(inside) / len(pairs), gap))
    if norm == "max":
        return max(gap for _, gap in gaps)
    if norm == "l1":
        return sum(share * gap for share, gap in gaps)
    return float(np.sqrt(sum(share * gap**2 for share, gap in gaps)))


def temporal_calibration_error(
    batches: Iterable[Sequence[Any]], n_bins: int = 15, norm: str = "l1"
) -> dict[str, Any]:
    """The result of TemporalCalibrationError."""
    rows = list(rows_of(batches))
    steps = [[row for row in rows if row.t == t] for t in range(steps_of(rows))]
    valid = [sum(row.label >= 0 for row in step) for step in steps]
    return {
        "overall": calibration_error(rows, n_bins, norm),
        "ece": np.array([calibration_error(step, n_bins, norm) for step in steps]),
        "valid": np.array(valid, dtype=np.int64),
    }
