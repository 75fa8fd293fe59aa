"""Embeddings against a gallery, compared block by block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_tensor, describe, refuse
from dynmetrics.core.scales import largest_of_rows, power_of_two
from dynmetrics.retrieval.ranks import Standing
from dynmetrics.retrieval.topk import standing_of

SIMILARITIES = ("cosine", "dot")

_BLOCK_ELEMENTS = 1 << 22
"""Similarities that exist at the same time."""


def checked_embeddings(argument: str, value: Any, device: torch.device | None = None) -> Tensor:
    """Embeddings (N, D), detached, in float32 or wider."""
    check_tensor(argument, value, device)
    if value.ndim != 2 or not value.is_floating_point() or not value.shape[1]:
        raise refuse(argument, "embeddings (N, D)", describe(value))
    rows: Tensor = value.detach()
    return rows.float() if rows.element_size() < 4 else rows


def standings(
    queries: Tensor, gallery: Tensor, right: Tensor, metric: str, ties: str
) -> Iterator[Standing]:
    """How the right candidates stand: indices (Q,) or booleans (Q, C), a block after the other.

    A gallery row with a NaN is no candidate, and a query for which it would be right is a miss.
    """
    if metric == "cosine":
        queries, gallery = unit_rows(queries), unit_rows(gallery)
    spoilt = ~gallery.isfinite().all(1)
    gallery = gallery.masked_fill(spoilt.unsqueeze(1), 0)
    rows = max(1, _BLOCK_ELEMENTS // max(1, len(gallery)))
    for start in range(0, len(queries), rows):
        chosen = right[start : start + rows]
        # The right one's own score comes from the same product as its rivals': no rounding favours.
        scores = queries[start : start + rows] @ gallery.T
        scores.masked_fill_(spoilt, -torch.inf)
        if chosen.dtype is not torch.bool and len(gallery):
            lost = spoilt[chosen.clamp(0, len(gallery) - 1)]
            scores.masked_fill_(lost.unsqueeze(1), torch.nan)
        yield standing_of(scores, chosen, ties)


def unit_rows(rows: Tensor) -> Tensor:
    """Rows (N, D) of length 1, however large or small they were; rows of zeros stay."""
    rows = rows / power_of_two(largest_of_rows(rows))
    sizes = rows.norm(dim=1, keepdim=True)
    return rows / torch.where(sizes > 0, sizes, 1.0)
