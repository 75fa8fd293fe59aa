"""Exact nearest neighbours by brute force, in pieces that fit a cache.

A neighbour travels as one int64: the float32 similarity in the upper half, its bits arranged so
that they sort as integers, and below it the index, turned round. So the largest keys are the
nearest rows, and of equally near ones those with the lower index, on every device and however the
rows are spread over blocks and ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dynmetrics.core.exchange import Exchange
from dynmetrics.core.scales import largest_of_rows, power_of_two, unit_rows

METRICS = ("cosine", "euclidean", "dot")
ABSENT = torch.iinfo(torch.int64).min
"""The key of no neighbour at all."""

_HALF = (1 << 32) - 1
_GROUP = 64
_BLOCK = 1024
_PART = 1 << 16
_QUERIES = 256
_ROUNDING = 8 * torch.finfo(torch.float64).eps


@dataclass(frozen=True)
class Frame:
    """Where and in what unit rows are measured: as (rows / unit - centre), in float64.

    `unit` is a power of two (), `centre` is (D,). Neither changes which rows are near; they keep
    the numbers in range, and distances their digits.
    """

    unit: Tensor
    centre: Tensor | None = None

    @classmethod
    def of(
        cls, bank: Tensor, queries: Tensor, metric: str, center: bool, total: int, ranks: Exchange
    ) -> Frame:
        """The frame for the rows of all ranks, `total` of them, and the queries of this one."""
        largest = bank.new_zeros((), dtype=torch.float64)
        for rows in (bank, queries):
            if len(rows):
                largest = torch.maximum(largest, largest_of_rows(rows).amax().to(torch.float64))
        unit = power_of_two(ranks.reduce(largest, "max"))
        if not center and metric != "euclidean":
            return cls(unit)
        sums = bank.new_zeros(bank.shape[1], dtype=torch.float64)
        for part in torch.split(bank, _PART):
            sums = sums + (part.to(torch.float64) / unit).sum(0)
        return cls(unit, ranks.reduce(sums, "sum") / total)

    def placed(self, rows: Tensor) -> Tensor:
        """Rows in this frame, in float64."""
        rows = rows.to(torch.float64) / self.unit
        return rows if self.centre is None else rows - self.centre


def prepared(rows: Tensor, metric: str, frame: Frame) -> Tensor:
    """Rows that are compared by their products: for cosine of unit length."""
    dtype = torch.float64 if rows.dtype is torch.float64 else torch.float32
    if frame.centre is not None:
        deviations = frame.placed(rows)
        # Less than the rounding of the mean is no deviation, and must not get a direction.
        deviations.masked_fill_(deviations.abs() <= _ROUNDING * frame.centre.abs(), 0)
        rows = deviations.to(dtype)
    elif metric == "dot":
        rows = rows.to(dtype) / frame.unit.to(dtype)
    return unit_rows(rows.to(dtype)) if metric == "cosine" else rows


def nearest(
    bank: Tensor,
    queries: Tensor,
    k: int,
    metric: str,
    frame: Frame,
    first: int = 0,
    bank_ids: Tensor | None = None,
    query_ids: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The keys (Q, k) of the k nearest rows of `bank` (N, D) to `queries` (Q, D), nearest first.

    The rows count from `first`. Rows with the id of a query are no neighbours of that query. Also
    the unit of the similarities, () or (Q, 1): those of products and distances come without it.
    """
    points = prepared(queries, metric, frame)
    unit = frame.unit.new_ones(())
    if metric == "dot":
        # A query's own size decides nothing between its neighbours.
        own = power_of_two(largest_of_rows(points))
        points = points / own
        unit = (own.to(torch.float64) * frame.unit) * frame.unit
    found = torch.full((len(queries), k), ABSENT, dtype=torch.int64, device=queries.device)
    for start in range(0, len(bank), _PART):
        part = prepared(bank[start : start + _PART], metric, frame)
        ids = None if bank_ids is None else bank_ids[start : start + _PART]
        search_part(PartSearch(part, first + start, ids, k), points, query_ids, found)
    return found, unit


def search_part(search: PartSearch, points: Tensor, ids: Tensor | None, found: Tensor) -> None:
    """Add to the keys `found` (Q, k) what the part of a bank has."""
    for begin in range(0, len(points), _QUERIES):
        rows = slice(begin, begin + _QUERIES)
        keys = search(points[rows], None if ids is None else ids[rows])
        found[rows] = merged(found[rows], keys)


def merged(one: Tensor, other: Tensor) -> Tensor:
    """The nearest of both sets of keys (Q, k), as many as `one` has."""
    return torch.cat([one, other], 1).topk(one.shape[1], dim=1).values


def joined(keys: Tensor, labels: Tensor, first: int, ranks: Exchange) -> tuple[Tensor, Tensor]:
    """The nearest rows of all ranks together and their labels (Q, k), from those of this rank."""
    places = (decoded(keys)[1] - first).clamp(min=0)
    own = torch.where(keys == ABSENT, 0, labels[places] if len(labels) else 0)
    all_keys, all_labels = torch.cat(ranks.gather(keys), 1), torch.cat(ranks.gather(own), 1)
    nearest_keys, order = all_keys.topk(keys.shape[1], dim=1)
    return nearest_keys, all_labels.gather(1, order)


def keys_of(similarity: Tensor, index: Tensor) -> Tensor:
    """The keys of similarities in float32; minus infinity stands for no neighbour."""
    # Adding 0 turns -0.0 into 0.0, which is as near.
    bits = (similarity + 0.0).view(torch.int32)
    bits ^= (bits >> 31) & 0x7FFFFFFF
    keys = bits.to(torch.int64).bitwise_left_shift_(32).add_(_HALF).sub_(index)
    return keys.masked_fill_(similarity == -torch.inf, ABSENT)


def decoded(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Similarities in float64 and indices of keys; minus infinity and 0 for no neighbour."""
    ordered = (keys >> 32).to(torch.int32)
    similarity = (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(torch.float32)
    absent = keys == ABSENT
    similarity = similarity.to(torch.float64).masked_fill(absent, -torch.inf)
    return similarity, (_HALF - (keys & _HALF)).masked_fill(absent, 0)


def largest(similarity: Tensor, index: Tensor, k: int) -> Tensor:
    """The k largest keys of every row of similarities and indices (Q, M), in any order."""
    return keys_of(similarity, index).topk(min(k, similarity.shape[1]), dim=1).values


class PartSearch:
    """Search in one part of a bank.

    Similarities are computed block by block; while a block is in the cache, the maximum of every
    group of rows in it is taken. The k nearest rows are in the k groups of the largest maxima.
    """

    def __init__(self, rows: Tensor, first: int, ids: Tensor | None, k: int) -> None:
        self.block = min(_BLOCK, -(-len(rows) // _GROUP) * _GROUP)
        self.blocks = -(-len(rows) // self.block)
        self.rows = rows
        self.first = first
        self.ids = ids
        self.k = k
        self.scratch = rows.new_empty(0, dtype=torch.float32)

    def __call__(self, queries: Tensor, ids: Tensor | None) -> Tensor:
        """The keys (Q, k) of the nearest rows."""
        count, groups = len(queries), self.block // _GROUP
        if self.scratch.numel() != self.blocks * count * self.block:
            # Kept from call to call: fresh memory would cost more than the products.
            shape = (self.blocks, count, self.block)
            self.scratch = self.rows.new_empty(shape, dtype=torch.float32)
            self.maxima = self.rows.new_empty((self.blocks, count, groups), dtype=torch.float32)
        for number in range(self.blocks):
            self._fill(number, queries, ids)
            block = self.scratch[number].view(count, groups, _GROUP)
            torch.amax(block, 2, out=self.maxima[number])
        best = self.maxima.transpose(0, 1).reshape(count, self.blocks * groups)
        numbers = torch.arange(best.shape[1], device=best.device)
        chosen = largest(best, numbers, min(self.k, best.shape[1]))
        # Groups without any neighbour have no place of their own to decode; the first will do.
        group = decoded(chosen)[1]
        query = torch.arange(count, device=best.device).unsqueeze(1)
        lines = ((group // groups * count + query) * groups + group % groups).flatten()
        candidates = self.scratch.view(-1, _GROUP).index_select(0, lines).view(count, -1, _GROUP)
        absent = chosen == ABSENT
        if bool(absent.any()):
            candidates.masked_fill_(absent.unsqueeze(2), -torch.inf)
        offsets = torch.arange(_GROUP, device=best.device)
        index = (group * _GROUP + self.first).unsqueeze(2) + offsets
        keys = largest(candidates.flatten(1), index.flatten(1), self.k)
        return torch.nn.functional.pad(keys, (0, self.k - keys.shape[1]), value=ABSENT)

    def _fill(self, number: int, queries: Tensor, ids: Tensor | None) -> None:
        """The similarities of the queries to one block of rows, into the scratch memory."""
        start = number * self.block
        block = slice(start, min(start + self.block, len(self.rows)))
        out = self.scratch[number]
        if block.stop - start < self.block:
            # The last block of a part is not full.
            out[:, block.stop - start :] = -torch.inf
            out = out[:, : block.stop - start]
        self.compare(queries, block, out)
        if ids is not None and self.ids is not None:
            out.masked_fill_(ids.unsqueeze(1) == self.ids[block], -torch.inf)

    def compare(self, queries: Tensor, block: slice, out: Tensor) -> None:
        """Write the similarities of the queries to a block of the rows into `out`."""
        rows = self.rows[block]
        if queries.dtype is torch.float32:
            torch.mm(queries, rows.T, out=out)
        else:
            out.copy_(queries @ rows.T)
