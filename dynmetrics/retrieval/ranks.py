"""Where the right candidate stands in a ranking, and what ties make of it.

Of a row of scores three numbers are enough: how many wrong candidates score more than the best
right one, how many score the same, and how many right ones share its score.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from dynmetrics.core.plain import on_plain_cpu

TIES = ("expected", "optimistic", "pessimistic", "lowest_index")

_BLOCK_ELEMENTS = 1 << 18
"""Scores looked at together, so that what is compared stays in the cache."""


class Standing(NamedTuple):
    """The standing of the best right candidate of every row, all (Q,) in float64."""

    ahead: Tensor
    """Wrong candidates that score strictly more."""
    level: Tensor
    """Wrong candidates that score the same."""
    before: Tensor
    """Those of them with a lower index than the first right one, if ties are broken by it."""
    shared: Tensor
    """Right candidates with the best right score, at least 1."""
    valid: Tensor
    """bool: rows that have a right candidate; the others do not count."""
    missed: Tensor
    """bool: rows that hold a NaN, which are never right."""


def standing_of_index(scores: Tensor, target: Tensor, ties: str = "lowest_index") -> Standing:
    """From scores (Q, C) and one right candidate each, (Q,); a negative one means none.

    An index of C or more is valid and never right.
    """
    return _block_by_block(_standing_of_index, scores, target, ties)


def _standing_of_index(scores: Tensor, target: Tensor, ties: str) -> Standing:
    candidates = scores.shape[-1]
    index = target.clamp(0, candidates - 1).unsqueeze(-1)
    own = scores.gather(-1, index)
    level = _count(torch.eq, scores, own) - 1
    before = torch.zeros_like(level)
    if ties == "lowest_index":
        positions = torch.arange(candidates, device=scores.device)
        before = _sum((scores == own) & (positions < index))
    return Standing(
        ahead=_count(torch.gt, scores, own),
        level=level,
        before=before,
        shared=torch.ones_like(level),
        valid=target >= 0,
        missed=_has_nan(scores) | (target >= candidates),
    )


def standing_of_positives(
    scores: Tensor, positives: Tensor, ties: str = "lowest_index"
) -> Standing:
    """From scores (Q, C) and a boolean (Q, C) of all right candidates."""
    return _block_by_block(_standing_of_positives, scores, positives, ties)


def _standing_of_positives(scores: Tensor, positives: Tensor, ties: str) -> Standing:
    own = scores.masked_fill(~positives, -torch.inf).amax(-1, keepdim=True)
    equal = scores == own
    level, shared = equal & ~positives, equal & positives
    before = torch.zeros_like(own[..., 0], dtype=torch.float64)
    if ties == "lowest_index":
        positions = torch.arange(scores.shape[-1], device=scores.device)
        first = torch.where(shared, positions, scores.shape[-1]).amin(-1, keepdim=True)
        before = _sum(level & (positions < first))
    return Standing(
        ahead=_sum((scores > own) & ~positives),
        level=_sum(level),
        before=before,
        shared=_sum(shared).clamp(min=1),
        valid=positives.any(-1),
        missed=_has_nan(scores),
    )


def _block_by_block(
    standing: Callable[[Tensor, Tensor, str], Standing], scores: Tensor, right: Tensor, ties: str
) -> Standing:
    """`standing` of blocks of rows, joined; at once where there is no such cache."""
    if scores.device.type != "cpu":
        return standing(scores, right, ties)
    rows = max(1, _BLOCK_ELEMENTS // max(1, scores.shape[-1]))
    pairs = zip(torch.split(scores, rows), torch.split(right, rows), strict=True)
    blocks = [standing(*pair, ties) for pair in pairs]
    return blocks[0] if len(blocks) == 1 else Standing(*map(torch.cat, zip(*blocks, strict=True)))


def _has_nan(scores: Tensor) -> Tensor:
    # NaN is the largest of all; this takes one pass and no mask.
    return scores.amax(-1).isnan()


def _count(compare: Callable[..., Tensor], scores: Tensor, own: Tensor) -> Tensor:
    """In how many candidates (Q,) the comparison with `own` (Q, 1) holds."""
    if not on_plain_cpu(scores):
        return _sum(compare(scores, own))
    # On a CPU floats are added many at a time, booleans one by one; such counts are exact.
    return compare(scores, own, out=torch.empty_like(scores)).sum(-1).to(torch.float64)


def _sum(condition: Tensor) -> Tensor:
    # Sums of 32 bits are twice as fast as those of 64, and no row is that long.
    return condition.sum(-1, dtype=torch.int32).to(torch.float64)


def hit_chance(standing: Standing, k: int, ties: str) -> Tensor:
    """The chance (Q,) that a right candidate is among the first k; 0 for rows that do not count."""
    ahead, level, before, shared, valid, missed = standing
    if ties == "expected":
        hit = _expected_hit(k - ahead, level, shared)
    else:
        none = torch.zeros_like(level)
        worse = {"optimistic": none, "pessimistic": level, "lowest_index": before}[ties]
        hit = (ahead + worse < k).to(torch.float64)
    return torch.where(valid & ~missed, hit, 0.0)


def _expected_hit(places: Tensor, level: Tensor, shared: Tensor) -> Tensor:
    """The chance that `places` draws out of `level` wrong and `shared` right ones hit a right one.

    1 - C(level, places) / C(level + shared, places), a product for whole numbers by lgamma.
    """
    places = places.clamp(min=0)
    possible = places <= level
    draws = torch.where(possible, places, 0.0)

    def log_choose(n: Tensor) -> Tensor:
        return torch.lgamma(n + 1) - torch.lgamma(draws + 1) - torch.lgamma(n - draws + 1)

    single = draws / (level + 1)
    several = -torch.expm1(log_choose(level) - log_choose(level + shared))
    return torch.where(possible, torch.where(shared == 1, single, several), 1.0)


def rank_of(standing: Standing, ties: str, candidates: int) -> Tensor:
    """The rank (Q,) of the best right candidate from 1; `candidates` + 1 if it is missed."""
    ahead, level, before, shared, _, missed = standing
    worse = {
        "expected": level / (shared + 1),
        "optimistic": torch.zeros_like(level),
        "pessimistic": level,
        "lowest_index": before,
    }[ties]
    return torch.where(missed, float(candidates + 1), ahead + worse + 1)
