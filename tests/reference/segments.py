"""Scores of action segmentation by their definition, with arrays of frames instead of segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from math import nan
from typing import Any

import numpy as np


def runs(labels: Sequence[int], background: Sequence[int]) -> list[tuple[int, set[int]]]:
    """Classes of the segments and the frames they hold."""
    found: list[tuple[int, set[int]]] = []
    for t, label in enumerate(labels):
        if t and labels[t - 1] == label:
            found[-1][1].add(t)
        else:
            found.append((label, {t}))
    return [(label, frames) for label, frames in found if label not in background]


def distance(one: Sequence[int], other: Sequence[int]) -> int:
    """Levenshtein's distance by its recursion."""

    @cache
    def between(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        replaced = between(i - 1, j - 1) + (one[i - 1] != other[j - 1])
        return min(between(i - 1, j) + 1, between(i, j - 1) + 1, replaced)

    return between(len(one), len(other))


def share(one: set[int], other: set[int]) -> float:
    """The frames in common over those from the first of either to the last of either."""
    return len(one & other) / (max(one | other) - min(one | other) + 1)


def found_wrong_missed(predicted: Any, true: Any, overlap: float) -> tuple[int, int, int]:
    """True positives, false positives and false negatives, one predicted segment after another."""
    taken = [False] * len(true)
    found = wrong = 0
    for label, frames in predicted:
        shares = [share(frames, other) if label == name else 0.0 for name, other in true]
        best = int(np.argmax(shares)) if shares else -1
        if best >= 0 and shares[best] >= overlap and not taken[best]:
            taken[best] = True
            found += 1
        else:
            wrong += 1
    return found, wrong, taken.count(False)


def kept_frames(preds: Any, target: Any, mask: Any) -> Iterable[tuple[list[int], list[int]]]:
    """The frames that count, video by video."""
    preds, target = np.atleast_2d(preds), np.atleast_2d(target)
    mask = np.ones(preds.shape, dtype=bool) if mask is None else np.atleast_2d(mask)
    for guess, label, there in zip(preds, target, mask, strict=True):
        keep = [t for t in range(len(label)) if there[t] and label[t] >= 0]
        yield [int(guess[t]) for t in keep], [int(label[t]) for t in keep]


def segment_scores(
    batches: Iterable[Sequence[Any]],
    background: Sequence[int] = (),
    overlaps: Sequence[float] = (0.1, 0.25, 0.5),
) -> dict[str, Any]:
    """The result of SegmentScores for batches (preds, target[, mask])."""
    right = frames = 0
    edits: list[float] = []
    counts = {overlap: np.zeros(3, dtype=np.int64) for overlap in overlaps}
    for batch in batches:
        preds, target, mask = (*batch, None)[:3]
        for guesses, labels in kept_frames(preds, target, mask):
            right += sum(g == y for g, y in zip(guesses, labels, strict=True))
            frames += len(labels)
            predicted, true = runs(guesses, background), runs(labels, background)
            if predicted or true:
                between = distance([label for label, _ in predicted], [label for label, _ in true])
                edits.append(1 - between / max(len(predicted), len(true)))
            for overlap in overlaps:
                counts[overlap] += found_wrong_missed(predicted, true, overlap)
    result = {"mof": right / frames if frames else nan}
    result["edit"] = sum(edits) / len(edits) if edits else nan
    for overlap, (found, wrong, missed) in counts.items():
        below = 2 * found + wrong + missed
        result[f"f1_{round(100 * overlap)}"] = 2 * found / below if below else nan
    return result
