"""Confusion, class scores, flips, latencies and reaction times by their definitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isnan, log, nan
from typing import Any

import numpy as np

from .row_values import Row, guess_of, mean, rows_of, samples_of, softmax, steps_of

Batches = Iterable[Sequence[Any]]


# ---------------------------------------------------------------------------- confusion


def temporal_confusion(batches: Batches, num_classes: int) -> Any:
    """Counts (T, C, C), row = true class."""
    rows = list(rows_of(batches))
    matrix = np.zeros((steps_of(rows), num_classes, num_classes), dtype=np.int64)
    for row in rows:
        guess = guess_of(row.scores)
        if 0 <= row.label < num_classes and guess >= 0:
            matrix[row.t, row.label, guess] += 1
    return matrix


# ---------------------------------------------------------------------------- class scores


def class_score(kind: str, tp: int, fp: int, fn: int, beta: float = 1.0) -> float:
    """Precision, recall or F score, 0 for 0 / 0."""
    if kind == "precision":
        return tp / (tp + fp) if tp + fp else 0.0
    if kind == "recall":
        return tp / (tp + fn) if tp + fn else 0.0
    below = (1 + beta**2) * tp + beta**2 * fn + fp
    return (1 + beta**2) * tp / below if below else 0.0


def averaged_score(
    rows: list[Row], kind: str, num_classes: int, average: str, absent_classes: str, beta: float
) -> Any:
    """The average over classes of the labelled rows."""
    pairs = [(row.label, guess_of(row.scores)) for row in rows if row.label >= 0]
    counts = []
    for c in range(num_classes):
        tp = sum(label == c and guess == c for label, guess in pairs)
        fp = sum(label != c and guess == c for label, guess in pairs)
        fn = sum(label == c and guess != c for label, guess in pairs)
        counts.append((tp, fp, fn))
    if not pairs:
        return np.full(num_classes, nan) if average == "none" else nan
    if average == "micro":
        tp = sum(label == guess for label, guess in pairs)
        guessed = sum(guess >= 0 for _, guess in pairs)
        return class_score(kind, tp, guessed - tp, len(pairs) - tp, beta)
    support = [tp + fn for tp, _, fn in counts]
    absent = 0.0 if absent_classes == "zero" else nan
    scores = [
        class_score(kind, *count, beta) if n else absent
        for count, n in zip(counts, support, strict=True)
    ]
    if average == "none":
        return np.array(scores)
    if average == "weighted":
        return sum(n / len(pairs) * s for n, s in zip(support, scores, strict=True) if n) + 0.0
    if absent_classes == "drop":
        return mean([s for n, s in zip(support, scores, strict=True) if n])
    return mean(scores)


def temporal_class_score(
    batches: Batches,
    kind: str,
    num_classes: int,
    average: str = "micro",
    absent_classes: str = "drop",
    beta: float = 1.0,
) -> dict[str, Any]:
    """The result of TemporalPrecision, TemporalRecall or TemporalFScore."""
    rows = list(rows_of(batches))
    steps = [[row for row in rows if row.t == t] for t in range(steps_of(rows))]
    options = kind, num_classes, average, absent_classes, beta
    curve = [averaged_score(step, *options) for step in steps]
    shape = (num_classes, 0) if average == "none" else (0,)
    return {
        "overall": averaged_score(rows, *options),
        kind: np.stack(curve, axis=-1) if curve else np.zeros(shape),
        "valid": np.array([sum(row.label >= 0 for row in step) for step in steps], dtype=np.int64),
    }


# ---------------------------------------------------------------------------- flips


def flip_rate(batches: Batches, average: str = "sample") -> float:
    """The share of consecutive labelled timesteps with different guesses."""
    rates, flips, pairs = [], 0, 0
    for sample in samples_of(batches):
        there = [row.label >= 0 and guess_of(row.scores) >= 0 for row in sample]
        changes = [
            guess_of(sample[t].scores) != guess_of(sample[t - 1].scores)
            for t in range(1, len(sample))
            if there[t] and there[t - 1]
        ]
        if changes:
            rates.append(sum(changes) / len(changes))
        flips, pairs = flips + sum(changes), pairs + len(changes)
    if average == "sample":
        return mean(rates)
    return flips / pairs if pairs else nan


# ---------------------------------------------------------------------------- latency


def latency_of(sample: list[Row], kind: str) -> int:
    """The timestep of the decision; -1 for never, -2 without a labelled timestep."""
    valid = [row for row in sample if row.label >= 0]
    if not valid:
        return -2
    for i, row in enumerate(valid):
        later = valid[i:] if kind == "stable" else [row]
        if all(guess_of(other.scores) == other.label for other in later):
            return row.t
    return -1


def histogram(times: list[int], steps: int) -> Any:
    return np.array([sum(time == t for time in times) for t in range(steps)], dtype=np.int64)


def decision_latency(batches: Batches, kind: str = "stable") -> dict[str, Any]:
    """The result of DecisionLatency."""
    samples = samples_of(batches)
    latencies = [latency_of(sample, kind) for sample in samples]
    decided = [time for time in latencies if time >= 0]
    n = sum(time > -2 for time in latencies)
    return {
        "mean": mean([float(time) for time in decided]),
        "median": float(np.median(decided)) if decided else nan,
        "histogram": histogram(decided, steps_of([row for sample in samples for row in sample])),
        "never": latencies.count(-1) / n if n else nan,
        "n": np.int64(n),
    }


# ---------------------------------------------------------------------------- reaction time


def entropy(scores: list[float]) -> float:
    return -sum(p * log(p) if p > 0 else p for p in softmax(scores))


def reaction_of(sample: list[Row], threshold: float, measure: str) -> tuple[int, bool, bool] | None:
    """The reaction time, whether the answer is right, and whether it is forced."""
    valid = [row for row in sample if row.label >= 0]
    for row in valid:
        if any(map(isnan, row.scores)):
            continue
        if measure == "confidence":
            sure = max(softmax(row.scores)) >= threshold
        else:
            sure = entropy(row.scores) <= threshold
        if sure:
            return row.t, guess_of(row.scores) == row.label, False
    if not valid:
        return None
    return valid[-1].t, guess_of(valid[-1].scores) == valid[-1].label, True


def reaction_time(
    batches: Batches, threshold: float = 0.9, measure: str = "confidence"
) -> dict[str, Any]:
    """The result of ReactionTime."""
    samples = samples_of(batches)
    found = [reaction_of(sample, threshold, measure) for sample in samples]
    answers = [answer for answer in found if answer is not None]
    steps = steps_of([row for sample in samples for row in sample])
    return {
        "mean": mean([float(time) for time, _, _ in answers]),
        "accuracy": mean([float(right) for _, right, _ in answers]),
        "forced": mean([float(forced) for _, _, forced in answers]),
        "n": np.int64(len(answers)),
        "histogram": histogram([time for time, _, _ in answers], steps),
    }


# ---------------------------------------------------------------------------- area


def area_under_curve(curve: Sequence[float]) -> float:
    """Trapezoids between neighbouring defined points, over the time from first to last."""
    points = [(t, float(value)) for t, value in enumerate(curve) if not isnan(value)]
    if len(points) < 2:
        return points[0][1] if points else nan
    area = sum((t - s) * (a + b) / 2 for (s, a), (t, b) in pairwise(points))
    return area / (points[-1][0] - points[0][0])
