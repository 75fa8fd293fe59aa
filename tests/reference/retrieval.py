"""Retrieval by its definition: every order of tied candidates, one row at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

Scores = Sequence[Sequence[float]]


def first_right(row: Sequence[float], right: Sequence[bool], ties: str) -> list[int]:
    """The place (from 0) of the best right candidate, in every order that `ties` admits."""
    if any(math.isnan(score) for score in row):
        return [len(row)]
    keys = {"optimistic": [not r for r in right], "pessimistic": list(right)}
    if ties in keys:
        order = sorted(range(len(row)), key=lambda i: (-row[i], keys[ties][i]))
        return [next(place for place, i in enumerate(order) if right[i])]
    if ties == "lowest_index":
        order = sorted(range(len(row)), key=lambda i: -row[i])
        return [next(place for place, i in enumerate(order) if right[i])]
    best = max(score for score, r in zip(row, right, strict=True) if r)
    ahead = sum(score > best for score in row)
    group = [r for score, r in zip(row, right, strict=True) if score == best]
    # Orders of a tied group: only where its right members stand matters.
    spots = itertools.combinations(range(len(group)), sum(group))
    return [ahead + min(chosen) for chosen in spots]


def recall(scores: Scores, right: Sequence[Sequence[bool]], k: int, ties: str) -> float:
    """The mean over rows with a right candidate of the chance of a hit among the first k."""
    chances = []
    for row, marks in zip(scores, right, strict=True):
        if any(marks):
            places = first_right(row, marks, ties)
            chances.append(sum(place < k for place in places) / len(places))
    return sum(chances) / len(chances) if chances else math.nan


def ranks(scores: Scores, right: Sequence[Sequence[bool]], ties: str) -> list[float]:
    """The mean rank from 1 of every row with a right candidate."""
    result = []
    for row, marks in zip(scores, right, strict=True):
        if any(marks):
            places = first_right(row, marks, ties)
            result.append(1 + sum(places) / len(places))
    return result


def one_hot(target: Sequence[int], classes: int) -> list[list[bool]]:
    """One right candidate a row, none for a negative index."""
    return [[c == label for c in range(classes)] for label in target]
