"""The rank of the true class among the scores, without sorting.

Rank 0 is the best. The rank is the number of strictly greater scores plus what `ties` says about
equal ones, so top-k accuracy asks `rank < k`: deterministic, the same on every device, and monotone
in k. A row with a NaN is never right.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from dynmetrics.core.plain import on_plain_cpu
from dynmetrics.temporal.inputs import wide

TIES = ("lowest_index", "optimistic", "pessimistic")

_CHUNK_ELEMENTS = 1 << 19
"""Elements of scores compared at once on a CPU: the working set then stays in the cache."""

_VECTOR_CLASSES = 32
"""Rows that are shorter torch reduces one element at a time."""

_FEW_CLASSES = 256
"""In longer rows NumPy's argmax costs less than to look for ties."""


def first_maximum(scores: Tensor) -> Tensor:
    """The lowest index of the largest value, and -1 where a value is NaN."""
    if _for_numpy(scores) and scores.shape[-1] < _VECTOR_CLASSES:
        return _first_maximum_of_few(scores)
    # On a CPU torch's argmax is a scalar loop; NumPy's is vectorised, 5 to 10 times faster.
    guess = (
        torch.from_numpy(scores.detach().contiguous().numpy().argmax(-1))
        if _for_numpy(scores)
        else scores.argmax(-1)
    )
    # Both take a NaN for the maximum.
    nonfinite = scores.gather(-1, guess.unsqueeze(-1)).squeeze(-1).isnan()
    return torch.where(nonfinite, -1, guess)


def _for_numpy(scores: Tensor) -> bool:
    return on_plain_cpu(scores) and scores.numel() > 0 and scores.dtype is not torch.bfloat16


def _first_maximum_of_few(scores: Tensor) -> Tensor:
    """`first_maximum` of short rows, class by class: so every step is vectorised over the rows."""
    import numpy as np

    classes = scores.shape[-1]
    columns = scores.detach().numpy().reshape(-1, classes).T.copy()
    best = columns == columns.max(0)
    # 255 where a class is not the best: above every index, and read as int8 it is -1.
    missed = best.view(np.uint8) - np.uint8(1)
    index = missed | np.arange(classes, dtype=np.uint8)[:, None]
    guess = index.min(0).view(np.int8).astype(np.int64)
    return torch.from_numpy(guess).reshape(scores.shape[:-1])


def _label_is_first_maximum(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Whether `scores.argmax(-1) == labels`, and which rows hold a NaN."""
    if _for_numpy(scores) and scores.shape[-1] >= _VECTOR_CLASSES:
        # The maximum is vectorised, its index is not: unless scores tie, the maximum will do.
        best = scores.amax(-1)
        index = labels.clamp(0, scores.shape[-1] - 1)
        own = scores.gather(-1, index.unsqueeze(-1)).squeeze(-1)
        hits = (own >= best) & (index == labels)
        if _ties_excluded(scores, best, hits):
            return hits, best.isnan()
    guess = first_maximum(scores)
    nonfinite = guess < 0
    return (guess == labels) & ~nonfinite, nonfinite


def _ties_excluded(scores: Tensor, best: Tensor, hits: Tensor) -> bool:
    """Whether it is known that none of the rows that are hits holds its maximum twice."""
    import numpy as np

    # NumPy counts booleans fast, torch one by one.
    rows = scores.detach().numpy().reshape(-1, scores.shape[-1])
    chosen, top = hits.numpy().reshape(-1), best.detach().numpy().reshape(-1)
    n, classes = np.count_nonzero(chosen), rows.shape[1]
    if 2 * n <= chosen.size:
        return bool(np.count_nonzero(rows[chosen] == top[chosen, None]) == n)
    if classes >= _FEW_CLASSES:
        return False
    return bool(np.count_nonzero(rows == np.where(chosen, top, np.nan)[:, None]) == n)


def label_hits(
    scores: Tensor, labels: Tensor, top_k: tuple[int, ...], ties: str = "lowest_index"
) -> tuple[list[Tensor], Tensor]:
    """Whether the true class is among the k best, for every k, and which rows hold a NaN.

    Args:
        scores: (..., C), float.
        labels: (...), int64; an index outside 0..C-1 is never right.
        top_k: the k asked for.
        ties: "lowest_index" as argmax, "optimistic" or "pessimistic".

    Returns:
        For every k a boolean tensor (...), and the boolean tensor (...) of rows with a NaN.
    """
    if top_k == (1,) and ties == "lowest_index":
        hits, nonfinite = _label_is_first_maximum(scores, labels)
        return [hits], nonfinite
    nonfinite = scores.amax(-1).isnan()
    rank = label_ranks(scores, labels, ties)
    possible = ~nonfinite & (labels >= 0) & (labels < scores.shape[-1])
    return [(rank < k) & possible for k in top_k], nonfinite


def label_ranks(scores: Tensor, labels: Tensor, ties: str = "lowest_index") -> Tensor:
    """The rank (...) of class `labels` (...) among `scores` (..., C); labels are clamped to C."""
    parts = [ranks_in_chunk(chunk, chunk.indices[0], ties) for chunk in chunks(scores, labels)]
    return torch.cat(parts).reshape(labels.shape)


class Chunk(NamedTuple):
    """Some rows of the scores, few enough for the cache."""

    values: Tensor
    """Scores in float32 or wider, (n, C) or (C, n)."""
    indices: tuple[Tensor, ...]
    """Labels of the rows, clamped to C, (n, 1) or (1, n)."""
    dim: int
    """The axis of the classes: 1 or 0."""
    scratch: Tensor | None
    """On a plain CPU, memory like `values` to compute in, until the next chunk."""


def chunks(scores: Tensor, *labels: Tensor) -> Iterator[Chunk]:
    """The rows of `scores` (..., C) in chunks, with the labels (...) of each."""
    classes, rows = scores.shape[-1], scores[..., 0].numel()
    plain = on_plain_cpu(scores)
    # Short rows are added up one element at a time, columns many at a time.
    dim = 0 if plain and classes < _VECTOR_CLASSES else 1
    labels = tuple(part.clamp(0, classes - 1) for part in labels)
    if scores.is_contiguous():
        scores = scores.reshape(-1, classes)
        labels = tuple(part.reshape(-1) for part in labels)
    n = len(scores)
    if not torch.compiler.is_compiling() and rows:
        n = max(1, _chunk_elements(scores) * n // scores.numel())
    scratch = None
    pieces = zip(torch.split(scores, n), *(torch.split(part, n) for part in labels), strict=True)
    for piece, *parts in pieces:
        values = wide(piece).reshape(-1, classes)
        values = values if dim else values.T.contiguous()
        if plain:
            scratch = _scratch_like(values)
        indices = tuple(part.reshape(-1).unsqueeze(dim) for part in parts)
        yield Chunk(values, indices, dim, scratch)


_memory = threading.local()


def _scratch_like(values: Tensor) -> Tensor:
    """Memory like `values` (n, m), the same in every call: fresh memory would cost page faults."""
    if values.numel() > _CHUNK_ELEMENTS:
        return torch.empty_like(values)
    kept: Tensor | None = getattr(_memory, str(values.dtype), None)
    if kept is None or kept.numel() < values.numel():
        # What inference mode makes could not be written to outside it.
        with torch.inference_mode(False):
            kept = torch.empty(values.numel(), dtype=values.dtype)
        setattr(_memory, str(values.dtype), kept)
    return kept[: values.numel()].view(values.shape)


def _chunk_elements(scores: Tensor) -> int:
    # Elsewhere a chunk costs launches, so there are few of them: they only bound the memory.
    if scores.device.type != "cpu":
        return max(1 << 20, scores.numel() // 8)
    # Half precision needs memory for wider copies too.
    return _CHUNK_ELEMENTS // (4 if scores.element_size() < 4 else 1)


def ranks_in_chunk(chunk: Chunk, index: Tensor, ties: str) -> Tensor:
    """The rank (n,) of the class `index` in every row of a chunk."""
    values, dim = chunk.values, chunk.dim
    own = values.gather(dim, index)
    rank = _count(torch.gt, chunk, own)
    if ties == "optimistic":
        return rank
    equal = _count(torch.eq, chunk, own)
    if ties == "pessimistic":
        return rank + equal - 1
    if chunk.scratch is not None and (equal.numel() == 0 or float(equal.amax()) <= 1):
        return rank
    positions = torch.arange(values.shape[dim], device=values.device)
    before = positions.unsqueeze(1 - dim) < index
    return rank + ((values == own) & before).sum(dim, dtype=rank.dtype)


def _count(compare: Callable[..., Tensor], chunk: Chunk, own: Tensor) -> Tensor:
    """In how many classes the comparison with `own` holds; a count of classes is exact in float32.

    Torch adds floats many at a time, booleans one by one.
    """
    if chunk.scratch is None:
        return compare(chunk.values, own).sum(chunk.dim, dtype=torch.float32)
    return compare(chunk.values, own, out=chunk.scratch).sum(chunk.dim)
