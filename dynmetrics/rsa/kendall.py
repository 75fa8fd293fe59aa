"""Kendall's rank correlations in O(n log^2 n), by counting inversions while merging."""

from __future__ import annotations

import torch
from torch import Tensor

_FIRST_WIDTH = 32


def kendall(a: Tensor, b: Tensor, variant: str) -> Tensor:
    """Kendall's tau-"a" or tau-"b" of two vectors of dense ranks (N,), int64.

    With C concordant and D discordant of all N (N - 1) / 2 pairs, tau-a is (C - D) over all pairs,
    tau-b is (C - D) over the geometric mean of the pairs not tied in `a` and not tied in `b`.
    NaN where one of the vectors is constant.
    """
    n = a.shape[-1]
    both = a * n + b
    pairs = n * (n - 1) // 2
    tied_a, tied_b, tied_both = (_tied_pairs(v) for v in (a, b, both))
    # In the order of a, and of b among ties of a, only discordant pairs are inverted.
    discordant = inversions(b[both.argsort()])
    difference = (pairs - tied_a - tied_b + tied_both - 2 * discordant).to(torch.float64)
    untied_a, untied_b = (pairs - tied_a).to(torch.float64), (pairs - tied_b).to(torch.float64)
    constant = (untied_a == 0) | (untied_b == 0)
    scale = (
        untied_a.sqrt() * untied_b.sqrt() if variant == "b" else torch.full_like(untied_a, pairs)
    )
    return (difference / scale).masked_fill(constant, torch.nan).clamp(-1, 1)


def inversions(values: Tensor) -> Tensor:
    """How many pairs i < j of int64 `values` (N,) have values[i] > values[j]."""
    n = values.shape[-1]
    size = max(_FIRST_WIDTH, 1 << max(n - 1, 0).bit_length())
    padding = values.new_full((size - n,), torch.iinfo(torch.int64).max)
    blocks = torch.cat([values, padding]).view(-1, _FIRST_WIDTH)
    greater = blocks.unsqueeze(2) > blocks.unsqueeze(1)
    count = greater.triu(1).sum()
    blocks = blocks.sort(-1).values
    while len(blocks) > 1:
        left, right = blocks[0::2].contiguous(), blocks[1::2].contiguous()
        not_greater = torch.searchsorted(left, right, right=True)
        count = count + (left.shape[1] - not_greater).sum()
        blocks = torch.cat([left, right], 1).sort(-1).values
    return count


def _tied_pairs(values: Tensor) -> Tensor:
    """How many pairs are equal."""
    counts = torch.unique(values, return_counts=True)[1]
    pairs: Tensor = (counts * (counts - 1) // 2).sum()
    return pairs
