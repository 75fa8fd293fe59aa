"""Accuracy and top-k accuracy by the definition, from counts pooled over every batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, nan
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from .success import wilson_interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Counts(TypedDict):
    """Integer counts, one entry per timestep; (C, T) where they are per class."""

    correct: dict[int, Ints]
    valid: Ints
    nonfinite: Ints
    out_of_range: Ints
    class_correct: dict[int, Ints]
    class_valid: Ints


# ---------------------------------------------------------------------------- one row of scores


def rank_of_label(row: Any, label: int, ties: str = "lowest_index") -> float:
    """Zero-based rank of the label among the scores of one row: top-k is right if rank < k.

    Infinity where no k can be right: a label beyond the classes, or a row that holds a NaN.
    """
    scores = [float(score) for score in row]
    if label >= len(scores) or any(np.isnan(scores)):
        return inf
    greater = sum(score > scores[label] for score in scores)
    if ties == "lowest_index":
        return greater + sum(score == scores[label] for score in scores[:label])
    if ties == "optimistic":
        return greater
    if ties == "pessimistic":
        return greater + sum(score == scores[label] for score in scores) - 1
    raise ValueError(f"unknown ties {ties!r}")


# ---------------------------------------------------------------------------- one batch


def first_label(labels: Any) -> int:
    """The first label of a sample that is one (not negative); -1 if it has none."""
    return next((int(label) for label in labels if label >= 0), -1)


def labels_over_time(labels: Any, n_steps: int, target: str = "label") -> Ints:
    """Labels (B,) or (B, T) as (B, T): a label per sample holds at every timestep."""
    labels = np.asarray(labels, dtype=np.int64)
    rows = []
    for row in labels:
        steps = [int(row)] * n_steps if labels.ndim == 1 else [int(label) for label in row]
        if target == "first_label":
            steps = [first_label(steps)] * n_steps
        rows.append(steps)
    return np.array(rows, dtype=np.int64).reshape(len(labels), n_steps)


def mask_over_time(mask: Any, n_samples: int, n_steps: int) -> NDArray[np.bool_]:
    """Mask None, (B,) or (B, T) as (B, T), True where a row counts."""
    if mask is None:
        return np.ones((n_samples, n_steps), dtype=bool)
    mask = np.asarray(mask, dtype=bool)
    return mask if mask.ndim == 2 else np.repeat(mask[:, None], n_steps, axis=1)


def accuracy_counts(
    logits: Any,
    labels: Any,
    mask: Any = None,
    top_k: Sequence[int] = (1,),
    ties: str = "lowest_index",
    target: str = "label",
) -> Counts:
    """Counts of one batch: logits (B, T, C), labels and mask (B,) or (B, T)."""
    logits = np.asarray(logits, dtype=np.float64)
    n_samples, n_steps, n_classes = logits.shape
    for k in top_k:
        if not 1 <= k <= n_classes:
            raise ValueError(f"top_k={k} with {n_classes} classes")
    labels = labels_over_time(labels, n_steps, target)
    mask = mask_over_time(mask, n_samples, n_steps)
    counts = empty_counts(top_k, n_classes, n_steps)
    for b in range(n_samples):
        for t in range(n_steps):
            label = int(labels[b, t])
            if label < 0 or not mask[b, t]:
                continue
            counts["valid"][t] += 1
            counts["nonfinite"][t] += bool(np.isnan(logits[b, t]).any())
            if label >= n_classes:
                counts["out_of_range"][t] += 1
                continue
            counts["class_valid"][label, t] += 1
            rank = rank_of_label(logits[b, t], label, ties)
            for k in top_k:
                counts["correct"][k][t] += rank < k
                counts["class_correct"][k][label, t] += rank < k
    return counts


def empty_counts(top_k: Sequence[int], n_classes: int, n_steps: int) -> Counts:
    """Counts of nothing."""
    return {
        "correct": {k: np.zeros(n_steps, dtype=np.int64) for k in top_k},
        "valid": np.zeros(n_steps, dtype=np.int64),
        "nonfinite": np.zeros(n_steps, dtype=np.int64),
        "out_of_range": np.zeros(n_steps, dtype=np.int64),
        "class_correct": {k: np.zeros((n_classes, n_steps), dtype=np.int64) for k in top_k},
        "class_valid": np.zeros((n_classes, n_steps), dtype=np.int64),
    }


# ---------------------------------------------------------------------------- all batches


def added(a: Ints, b: Ints) -> Ints:
    """The sum of two arrays aligned at t = 0 (the last axis), the shorter padded with zeros."""
    longer, shorter = (a, b) if a.shape[-1] >= b.shape[-1] else (b, a)
    total = longer.copy()
    total[..., : shorter.shape[-1]] += shorter
    return total


def pooled(a: Counts, b: Counts) -> Counts:
    """The counts of two batches together; their numbers of timesteps may differ."""
    return {
        "correct": {k: added(a["correct"][k], b["correct"][k]) for k in a["correct"]},
        "valid": added(a["valid"], b["valid"]),
        "nonfinite": added(a["nonfinite"], b["nonfinite"]),
        "out_of_range": added(a["out_of_range"], b["out_of_range"]),
        "class_correct": {
            k: added(a["class_correct"][k], b["class_correct"][k]) for k in a["class_correct"]
        },
        "class_valid": added(a["class_valid"], b["class_valid"]),
    }


def count_batches(
    batches: Iterable[Sequence[Any]],
    top_k: Sequence[int] = (1,),
    ties: str = "lowest_index",
    target: str = "label",
) -> Counts:
    """Pooled counts of batches (logits, labels) or (logits, labels, mask); at least one batch."""
    total: Counts | None = None
    for batch in batches:
        logits, labels, mask = (*batch, None)[:3]
        counts = accuracy_counts(logits, labels, mask, top_k, ties, target)
        total = counts if total is None else pooled(total, counts)
    if total is None:
        raise ValueError("no batch: the number of classes is unknown")
    return total


# ---------------------------------------------------------------------------- counts to values


def class_scores(class_correct: Ints, class_valid: Ints, absent_classes: str) -> Floats:
    """Correct / valid of each class (C,); a class without support is 0 for "zero", else NaN."""
    absent = 0.0 if absent_classes == "zero" else nan
    return np.array(
        [k / n if n else absent for k, n in zip(class_correct, class_valid, strict=True)],
        dtype=np.float64,
    )


def mean_over_classes(scores: Floats, class_valid: Ints, absent_classes: str) -> float:
    """The macro average; NaN when "drop" leaves no class."""
    if absent_classes == "drop":
        kept = [score for score, n in zip(scores, class_valid, strict=True) if n]
        return sum(kept) / len(kept) if kept else nan
    if absent_classes in ("zero", "nan"):
        return float(sum(scores) / len(scores))
    raise ValueError(f"unknown absent_classes {absent_classes!r}")


def averaged(
    correct: int,
    valid: int,
    class_correct: Ints,
    class_valid: Ints,
    average: str = "micro",
    absent_classes: str = "drop",
    empty: float = nan,
) -> Any:
    """One value, or (C,) for average "none", from the counts of one pool, `empty` without any."""
    if valid == 0:
        return np.full(len(class_valid), empty) if average == "none" else empty
    scores = class_scores(class_correct, class_valid, absent_classes)
    if average == "micro":
        return correct / valid
    if average == "weighted":
        # Labels beyond the classes have a weight too, but a recall of 0: the sum equals micro.
        shares = [n / valid for n in class_valid]
        return sum(w * s for w, s, n in zip(shares, scores, class_valid, strict=True) if n) + 0.0
    if average == "macro":
        return mean_over_classes(scores, class_valid, absent_classes)
    if average == "none":
        return scores
    raise ValueError(f"unknown average {average!r}")


def interval_over_time(
    counts: Counts, k: int, confidence: float, average: str
) -> tuple[Floats, Floats]:
    """Wilson bounds per timestep, per class and timestep for "none"; [0, 1] where nothing counted.

    A macro average is no binomial proportion, so it has no Wilson interval.
    """
    if average == "none":
        correct, valid = counts["class_correct"][k], counts["class_valid"]
    elif average in ("micro", "weighted"):
        correct, valid = counts["correct"][k], counts["valid"]
    else:
        raise ValueError(f"no Wilson interval for average {average!r}")
    bounds = [
        wilson_interval(int(right), int(n), confidence)
        for right, n in zip(correct.ravel(), valid.ravel(), strict=True)
    ]
    low = np.array([bound[0] for bound in bounds], dtype=np.float64).reshape(valid.shape)
    high = np.array([bound[1] for bound in bounds], dtype=np.float64).reshape(valid.shape)
    return low, high


def curve(counts: Counts, k: int, average: str, absent_classes: str) -> Floats:
    """The value at each timestep: (T,), or (C, T) for average "none"."""
    steps = [
        averaged(
            int(counts["correct"][k][t]),
            int(counts["valid"][t]),
            counts["class_correct"][k][:, t],
            counts["class_valid"][:, t],
            average,
            absent_classes,
        )
        for t in range(len(counts["valid"]))
    ]
    return np.stack(steps, axis=-1) if average == "none" else np.array(steps, dtype=np.float64)


def temporal_accuracy(
    batches: Iterable[Sequence[Any]],
    top_k: int | Sequence[int] = 1,
    average: str = "micro",
    absent_classes: str = "drop",
    empty_value: float = 0.0,
    confidence: float | None = None,
    ties: str = "lowest_index",
    target: str = "label",
) -> dict[str, Any]:
    """The result of TemporalAccuracy for batches (logits (B, T, C), labels[, mask])."""
    ks = (top_k,) if isinstance(top_k, int) else tuple(top_k)
    counts = count_batches(batches, ks, ties, target)
    result: dict[str, Any] = {}
    for k in ks:
        single = isinstance(top_k, int)
        end = "" if single else f"_top{k}"
        result[f"overall{end}"] = averaged(
            int(counts["correct"][k].sum()),
            int(counts["valid"].sum()),
            counts["class_correct"][k].sum(axis=1),
            counts["class_valid"].sum(axis=1),
            average,
            absent_classes,
            empty_value,
        )
        result["accuracy" if single else f"top{k}"] = curve(counts, k, average, absent_classes)
        if confidence is not None:
            low, high = interval_over_time(counts, k, confidence, average)
            result[f"low{end}"], result[f"high{end}"] = low, high
    result["valid"], result["nonfinite"] = counts["valid"], counts["nonfinite"]
    return result


# ---------------------------------------------------------------------------- Accuracy


def one_hot_scores(indices: Any, num_classes: int) -> Floats:
    """Predicted class indices (B,) or (B, T) as scores with a last class axis."""
    indices = np.asarray(indices)
    scores = np.zeros((*indices.shape, num_classes), dtype=np.float64)
    for position in np.ndindex(indices.shape):
        if not 0 <= indices[position] < num_classes:
            raise ValueError(f"predicted class {indices[position]} of {num_classes}")
        scores[(*position, int(indices[position]))] = 1.0
    return scores


def accuracy(
    batches: Iterable[Sequence[Any]],
    top_k: int = 1,
    average: str = "micro",
    absent_classes: str = "drop",
    empty_value: float = 0.0,
    ties: str = "lowest_index",
    num_classes: int | None = None,
) -> Any:
    """Single-label accuracy of batches (preds, target[, mask]): a float, (C,) for "none".

    preds are scores (B, C) or (B, T, C), or whole-number class indices (B,) or (B, T), which need
    `num_classes`.
    """
    over_time = []
    for preds, target, *mask in batches:
        preds = np.asarray(preds)
        if np.issubdtype(preds.dtype, np.integer):
            if num_classes is None or top_k != 1:
                raise ValueError("class indices need num_classes and top_k=1")
            preds = one_hot_scores(preds, num_classes)
        over_time.append((preds if preds.ndim == 3 else preds[:, None], target, *mask))
    result = temporal_accuracy(over_time, top_k, average, absent_classes, empty_value, ties=ties)
    return result["overall"]


class LabelCounts(TypedDict):
    """Counts of a multilabel task, one entry per label (L,)."""

    tp: Ints
    fp: Ints
    tn: Ints
    fn: Ints
    valid: Ints


def multilabel_counts(
    scores: Any, target: Any, mask: Any = None, threshold: float = 0.5
) -> LabelCounts:
    """Counts of one batch: scores and 0/1 targets (B, L), mask (B,).

    A score is a "yes" when strictly greater than the threshold. A negative target is no label, and
    a NaN score is never right.
    """
    scores = np.asarray(scores, dtype=np.float64)
    target = np.asarray(target, dtype=np.int64)
    keep = np.ones(len(scores), dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    n_labels = scores.shape[1]
    tp, fp, tn, fn, valid = (np.zeros(n_labels, dtype=np.int64) for _ in range(5))
    for b, label in np.ndindex(scores.shape):
        truth = target[b, label]
        if truth < 0 or not keep[b]:
            continue
        if truth > 1:
            raise ValueError(f"a multilabel target must be 0 or 1, got {truth}")
        # A NaN score takes the side that is wrong.
        yes = truth == 0 if np.isnan(scores[b, label]) else scores[b, label] > threshold
        valid[label] += 1
        tp[label] += bool(yes and truth == 1)
        fp[label] += bool(yes and truth == 0)
        tn[label] += bool(not yes and truth == 0)
        fn[label] += bool(not yes and truth == 1)
    return {"tp": tp, "fp": fp, "tn": tn, "fn": fn, "valid": valid}


def multilabel_accuracy(
    batches: Iterable[Sequence[Any]],
    average: str = "micro",
    threshold: float = 0.5,
    absent_classes: str = "drop",
    empty_value: float = 0.0,
) -> Any:
    """Multilabel accuracy (TP + TN) / all of batches (scores, target[, mask]); (L,) for "none".

    The weight of a label is its share of the positives, so without any positive the weighted
    average is NaN.
    """
    parts = []
    for batch in batches:
        scores, target, mask = (*batch, None)[:3]
        parts.append(multilabel_counts(scores, target, mask, threshold))
    right: Ints = np.sum([part["tp"] + part["tn"] for part in parts], axis=0)
    valid: Ints = np.sum([part["valid"] for part in parts], axis=0)
    positives: Ints = np.sum([part["tp"] + part["fn"] for part in parts], axis=0)
    if valid.sum() == 0:
        return np.full(len(valid), empty_value) if average == "none" else empty_value
    per_label = class_scores(right, valid, absent_classes)
    if average == "micro":
        return float(right.sum() / valid.sum())
    if average == "macro":
        return mean_over_classes(per_label, valid, absent_classes)
    if average == "weighted":
        total = positives.sum()
        if total == 0:
            return nan
        return float(sum(n / total * s for n, s in zip(positives, per_label, strict=True) if n))
    if average == "none":
        return per_label
    raise ValueError(f"unknown average {average!r}")
