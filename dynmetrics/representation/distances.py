"""Nearest neighbours by Euclidean distance, right also where distances are small among large rows.

|a - b|^2 from products is |a|^2 + |b|^2 - 2 a b, which has lost its digits where |a - b| is small
against |a|. So the products only choose candidates, in float64 and around a centre, and differences
rank them. Where more rows than that may be nearest, the search is repeated around one of the
queries concerned; and where that settles few, all distances are differences.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dynmetrics.representation.neighbours import (
    ABSENT,
    Frame,
    PartSearch,
    decoded,
    keys_of,
    largest,
    merged,
    search_part,
)

_SPARE = 16
_FEW = 1 / 32
_PART = 1 << 16
_NUMBERS = 1 << 22
_DIRECT = "donot_use_mm_for_euclid_dist"
# Of a distance: half the spacing of float32 over the rounding of float64 products.
_DIGITS = (2.0**-24 / torch.finfo(torch.float64).eps) ** 0.5


def nearest_by_distance(
    bank: Tensor,
    queries: Tensor,
    k: int,
    frame: Frame,
    first: int = 0,
    bank_ids: Tensor | None = None,
    query_ids: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As `nearest`; a similarity is minus a distance."""
    found = torch.full((len(queries), k), ABSENT, dtype=torch.int64, device=queries.device)
    left = torch.arange(len(queries), device=queries.device)
    if not len(bank):
        return found, frame.unit
    centre = frame.centre
    while len(left):
        own_ids = None if query_ids is None else query_ids[left]
        around = Frame(frame.unit, centre)
        points = around.placed(queries[left])
        candidates = _candidates(
            bank, points, around, min(k + _SPARE, len(bank)), bank_ids, own_ids
        )
        found[left] = _ranked(bank, queries[left], candidates, k, frame.unit, first)
        last, _ = decoded(candidates[:, -1])
        # Nearer than this, products do not tell two rows apart, and candidates could be missing.
        doubtful = 4 * points.norm(dim=1) * points.shape[1] ** 0.5 / _DIGITS
        unsettled = (-last < doubtful) & (candidates.shape[1] < len(bank))
        before, left = len(left), left[unsettled]
        if before - len(left) < _FEW * before:
            break
        if len(left):
            centre = queries[left[0]].to(torch.float64) / frame.unit
    for rows in torch.split(left, max(1, _NUMBERS // _PART)):
        own_ids = None if query_ids is None else query_ids[rows]
        found[rows] = _compared(bank, queries[rows], k, frame.unit, first, bank_ids, own_ids)
    return found, frame.unit


class _Distances(PartSearch):
    """Search among rows of which the products give distances."""

    def __init__(self, rows: Tensor, first: int, ids: Tensor | None, k: int) -> None:
        super().__init__(rows, first, ids, k)
        self.squares = rows.square().sum(1)

    def compare(self, queries: Tensor, block: slice, out: Tensor) -> None:
        squares = torch.addmm(self.squares[block], queries, self.rows[block].T, alpha=-2)
        squares += queries.square().sum(1, keepdim=True)
        out.copy_(squares.clamp_(min=0).sqrt_().neg_())


def _candidates(
    bank: Tensor,
    points: Tensor,
    frame: Frame,
    count: int,
    bank_ids: Tensor | None,
    query_ids: Tensor | None,
) -> Tensor:
    """The keys (Q, count) of rows that are nearest by products, counted from 0."""
    found = torch.full((len(points), count), ABSENT, dtype=torch.int64, device=points.device)
    for start in range(0, len(bank), _PART):
        part = frame.placed(bank[start : start + _PART])
        ids = None if bank_ids is None else bank_ids[start : start + _PART]
        search_part(_Distances(part, start, ids, count), points, query_ids, found)
    return found


def _ranked(
    bank: Tensor, queries: Tensor, candidates: Tensor, k: int, unit: Tensor, first: int
) -> Tensor:
    """The keys (Q, k) of the nearest candidates, by differences."""
    _, index = decoded(candidates)
    pieces = []
    size = max(1, _NUMBERS // (candidates.shape[1] * bank.shape[1]))
    for query, rows, keys in zip(
        *(torch.split(table, size) for table in (queries, index, candidates)), strict=True
    ):
        steps = bank[rows].to(torch.float64) / unit - query.to(torch.float64).unsqueeze(1) / unit
        nearness = -steps.norm(dim=2).to(torch.float32)
        nearness = nearness.masked_fill(keys == ABSENT, -torch.inf)
        best = largest(nearness, rows + first, k)
        pieces.append(torch.nn.functional.pad(best, (0, k - best.shape[1]), value=ABSENT))
    return torch.cat(pieces)


def _compared(
    bank: Tensor,
    queries: Tensor,
    k: int,
    unit: Tensor,
    first: int,
    bank_ids: Tensor | None,
    query_ids: Tensor | None,
) -> Tensor:
    """The keys (Q, k) of the nearest rows, all by differences."""
    points = queries.to(torch.float64) / unit
    found = torch.full((len(queries), k), ABSENT, dtype=torch.int64, device=queries.device)
    for start in range(0, len(bank), _PART):
        part = bank[start : start + _PART].to(torch.float64) / unit
        nearness = -torch.cdist(points, part, compute_mode=_DIRECT).to(torch.float32)
        if bank_ids is not None and query_ids is not None:
            own = query_ids.unsqueeze(1) == bank_ids[start : start + _PART]
            nearness.masked_fill_(own, -torch.inf)
        index = torch.arange(first + start, first + start + len(part), device=bank.device)
        best = keys_of(nearness, index).topk(min(k, len(part)), dim=1).values
        found = merged(found, best)
    return found
