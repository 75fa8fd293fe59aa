"""Powers of two by which vectors are divided, so that no square of theirs leaves its range.

Such a division is exact: it costs no digit, and numbers of ordinary size lose none by it.
"""

from __future__ import annotations

import torch
from torch import Tensor


def power_of_two(sizes: Tensor) -> Tensor:
    """For every size a power of two that is at least as large, and less than twice as large.

    It stays in the range where its inverse is a number as well; 0 and NaN do no harm.
    """
    bounds = torch.finfo(sizes.dtype)
    sizes = sizes.clamp(4 * bounds.tiny, bounds.max / 8)
    return sizes / torch.frexp(sizes).mantissa


def largest_of_rows(rows: Tensor) -> Tensor:
    """The largest absolute value in every row (..., 1) of rows (..., D), D >= 1."""
    return torch.maximum(rows.amax(-1, keepdim=True), -rows.amin(-1, keepdim=True))


def unit_rows(rows: Tensor) -> Tensor:
    """Rows (N, D) of length 1, of whatever length they were; zeros stay zeros."""
    rows = rows / power_of_two(largest_of_rows(rows))
    sizes = rows.norm(dim=1, keepdim=True)
    return rows.div_(torch.where(sizes > 0, sizes, 1.0))
