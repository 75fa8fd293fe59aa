"""Exact nearest neighbours by brute force, in pieces that fit a cache.

A neighbour travels as one int64: the float32 similarity in the upper half, its bits arranged so
that they sort as integers, and below it the index, turned round. So the largest keys are the
nearest rows, and of equally near ones those with the lower index, on every device and however the
rows are spread over blocks and ranks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dynmetrics.core.exchange import Exchange

METRICS = ("cosine", "euclidean", "dot")
ABSENT = torch.iinfo(torch.int64).min
"""The key of no neighbour at all."""

_HALF = (1 << 32) - 1
_GROUP = 64
_BLOCK = 1024
_PART = 1 << 16
_QUERIES = 256


def nearest(
    bank: Tensor,
    queries: Tensor,
    k: int,
    metric: str = "cosine",
    *,
    first: int = 0,
    bank_ids: Tensor | None = None,
    query_ids: Tensor | None = None,
) -> Tensor:
    """The keys (Q, k) of the k nearest rows of `bank` (N, D) to `queries` (Q, D), nearest first.

    The rows count from `first`. Rows with the id of a query are no neighbours of that query.
    """
    found = torch.full((len(queries), k), ABSENT, dtype=torch.int64, device=queries.device)
    queries = _prepared(queries, metric)
    for start in range(0, len(bank), _PART):
        part = _prepared(bank[start : start + _PART], metric)
        ids = None if bank_ids is None else bank_ids[start : start + _PART]
        search = _PartSearch(part, first + start, ids, metric, k)
        for begin in range(0, len(queries), _QUERIES):
            rows = slice(begin, begin + _QUERIES)
            keys = search(queries[rows], None if query_ids is None else query_ids[rows])
            found[rows] = merged(found[rows], keys)
    return found


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


def around(rows: Tensor, centre: Tensor | None) -> Tensor:
    """The rows as deviations from `centre`, if there is one."""
    if centre is None:
        return rows
    dtype = torch.float64 if rows.dtype is torch.float64 else torch.float32
    return (rows.to(torch.float64) - centre).to(dtype)


def keys_of(similarity: Tensor, index: Tensor) -> Tensor:
    """The keys of similarities in float32; minus infinity stands for no neighbour."""
    # Adding 0 turns -0.0 into 0.0, which is as near.
    bits = (similarity + 0.0).view(torch.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    keys = (ordered.to(torch.int64) << 32) | (_HALF - index)
    return torch.where(similarity == -torch.inf, ABSENT, keys)


def decoded(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Similarities in float64 and indices of keys; minus infinity and 0 for no neighbour."""
    ordered = (keys >> 32).to(torch.int32)
    similarity = (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(torch.float32)
    absent = keys == ABSENT
    similarity = similarity.to(torch.float64).masked_fill(absent, -torch.inf)
    return similarity, (_HALF - (keys & _HALF)).masked_fill(absent, 0)


def _prepared(rows: Tensor, metric: str) -> Tensor:
    """Rows of unit length for cosine; float64 for distances, whose squares cancel."""
    if metric == "euclidean":
        return rows.to(torch.float64)
    rows = rows.to(torch.float32) if rows.dtype is torch.float16 else rows
    if metric == "cosine":
        sizes = rows.norm(dim=1, keepdim=True)
        rows = rows / torch.where(sizes > 0, sizes, 1.0)
    return rows


def largest(similarity: Tensor, index: Tensor, k: int) -> Tensor:
    """The k largest keys of every row of similarities and indices (Q, M), in any order."""
    return keys_of(similarity, index).topk(min(k, similarity.shape[1]), dim=1).values


class _PartSearch:
    """Search in one part of a bank.

    Similarities are computed block by block; while a block is in the cache, the maximum of every
    group of rows in it is taken. The k nearest rows are in the k groups of the largest maxima.
    """

    def __init__(self, rows: Tensor, first: int, ids: Tensor | None, metric: str, k: int) -> None:
        self.block = min(_BLOCK, -(-len(rows) // _GROUP) * _GROUP)
        self.blocks = -(-len(rows) // self.block)
        self.rows = rows
        self.squares = rows.square().sum(1) if metric == "euclidean" else None
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
        numbers = torch.arange(best.shape[1], device=best.device).expand_as(best)
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
        rows = self.rows[start : start + self.block]
        out = self.scratch[number]
        if len(rows) < self.block:
            # The last block of a part is not full.
            out[:, len(rows) :] = -torch.inf
            out = out[:, : len(rows)]
        if self.squares is not None:
            products = queries @ rows.T
            squares = (
                queries.square().sum(1, keepdim=True) + self.squares[start : start + len(rows)]
            )
            out.copy_((2 * products - squares).clamp(max=0))
        elif queries.dtype is torch.float32:
            torch.mm(queries, rows.T, out=out)
        else:
            out.copy_(queries @ rows.T)
        if ids is not None and self.ids is not None:
            theirs = self.ids[start : start + len(rows)]
            out.masked_fill_(ids.unsqueeze(1) == theirs, -torch.inf)
