"""The rank of the true class among the scores, without sorting.

Rank 0 is the best. The rank is the number of strictly greater scores plus what `ties` says about
equal ones, so top-k accuracy asks `rank < k`: deterministic, the same on every device, and monotone
in k. A row with a NaN is never right.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

TIES = ("lowest_index", "optimistic", "pessimistic")

_CHUNK_ELEMENTS = 1 << 18
"""Elements of scores compared at once on a CPU: the working set then stays in the cache."""

_VECTOR_CLASSES = 32
"""Rows that are shorter torch reduces one element at a time."""

_FEW_CLASSES = 256
"""In longer rows NumPy's argmax costs less than to look for ties."""


def first_maximum(scores: Tensor) -> Tensor:
    """`scores.argmax(-1)`: the lowest index of the largest value, or of the first NaN."""
    if _for_numpy(scores):
        # On a CPU torch's argmax is a scalar loop; NumPy's is vectorised, 5 to 10 times faster.
        return torch.from_numpy(scores.detach().contiguous().numpy().argmax(-1))
    return scores.argmax(-1)


def _for_numpy(scores: Tensor) -> bool:
    plain = type(scores) is Tensor and scores.device.type == "cpu"
    return plain and not torch.compiler.is_compiling() and scores.numel() > 0


def _label_is_first_maximum(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Whether `scores.argmax(-1) == labels`, and which rows hold a NaN."""
    if _for_numpy(scores):
        # The maximum is vectorised, its index is not: unless scores tie, the maximum will do.
        values, best = _rows_and_maximum(scores)
        index = labels.clamp(0, scores.shape[-1] - 1)
        own = scores.gather(-1, index.unsqueeze(-1)).squeeze(-1)
        hits = (own == best) & (index == labels)
        if _ties_excluded(values, best, hits):
            return hits, best.isnan()
    guess = first_maximum(scores)
    # Both NumPy's and torch's argmax take a NaN for the maximum.
    nonfinite = scores.gather(-1, guess.unsqueeze(-1)).squeeze(-1).isnan()
    return (guess == labels) & ~nonfinite, nonfinite


def _rows_and_maximum(scores: Tensor) -> tuple[Any, Tensor]:
    """`scores` on a CPU as a NumPy array (N, C), and `scores.amax(-1)`."""
    classes = scores.shape[-1]
    rows = scores.detach().numpy().reshape(-1, classes)
    if classes >= _VECTOR_CLASSES:
        return rows, scores.amax(-1)
    rows = rows.T.copy().T
    return rows, torch.from_numpy(rows.max(-1)).reshape(scores.shape[:-1])


def _ties_excluded(rows: Any, best: Tensor, hits: Tensor) -> bool:
    """Whether it is known that none of the rows (N, C) that are hits holds its maximum twice."""
    import numpy as np

    # NumPy counts booleans fast, torch one by one.
    chosen, top = hits.numpy().reshape(-1), best.detach().numpy().reshape(-1)
    n, classes = np.count_nonzero(chosen), rows.shape[1]
    if classes >= _VECTOR_CLASSES and 2 * n <= chosen.size:
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
    classes = scores.shape[-1]
    flat = scores.reshape(-1, classes)
    index = labels.reshape(-1, 1).clamp(0, classes - 1)
    rows = max(1, _CHUNK_ELEMENTS // classes) if scores.device.type == "cpu" else len(flat)
    if torch.compiler.is_compiling() or len(flat) <= rows:
        return _ranks(flat, index, ties).reshape(labels.shape)
    chunks = zip(torch.split(flat, rows), torch.split(index, rows), strict=True)
    return torch.cat([_ranks(s, i, ties) for s, i in chunks]).reshape(labels.shape)


def _ranks(scores: Tensor, index: Tensor, ties: str) -> Tensor:
    own = scores.gather(1, index)
    # Summing floats is vectorised, summing booleans is not. A count of classes is exact in float32.
    rank = _count(scores > own)
    if ties == "optimistic":
        return rank
    equal = scores == own
    if ties == "pessimistic":
        return rank + _count(equal) - 1
    before = torch.arange(scores.shape[1], device=scores.device) < index
    return rank + _count(equal & before)


def _count(condition: Tensor) -> Tensor:
    return condition.float().sum(1)
