"""Mean patterns in float64, a block of features at a time, and what is made of the blocks."""

from __future__ import annotations

from collections.abc import Callable, Generator

import torch
from torch import Tensor

from dynmetrics.rsa.magnitudes import outlying_exponent, times_power_of_two

_PANEL = 144
_ROWS = 48
_BLOCK_VALUES = 1 << 18
_LEAST_WIDTH = 256
_ROW_VALUES = 1 << 17


class Means:
    """Mean patterns, made a block of features at a time: sums (K, D) over counts (K,)."""

    def __init__(self, sums: Tensor, counts: Tensor) -> None:
        self.sums = sums
        self.counts = counts
        self.n = counts.clamp(min=1).to(torch.float64).unsqueeze(1)
        self.size, self.features = sums.shape
        self._largest: Tensor | None = None
        self._deviations: Tensor | None = None

    @property
    def largest(self) -> Tensor:
        """The largest magnitude (K,) of each row of sums; NaN or infinite if any value is."""
        if self._largest is None:
            self._largest = largest_magnitude(self.sums).squeeze(1)
        return self._largest

    @property
    def defined(self) -> Tensor:
        """Which rows (K,) have a pattern at all."""
        return (self.counts > 0) & self.largest.isfinite()

    def exponent(self) -> Tensor | None:
        """The binary exponent () of the largest value of all, if it is far from ordinary."""
        return outlying_exponent(self.largest.detach().where(self.defined, 0.0).amax())

    def scaled(self, exponent: Tensor) -> Means:
        """The patterns times 2^`exponent`, of one number or one for each row."""
        sums = times_power_of_two(self.sums.to(torch.float64), exponent.reshape(-1, 1))
        return Means(sums, self.counts)

    def blocks(self) -> list[tuple[int, int]]:
        """Ranges of features, so narrow that a block stays in a cache."""
        width = max(_LEAST_WIDTH, _BLOCK_VALUES // self.size)
        return [(a, min(a + width, self.features)) for a in range(0, self.features, width)]

    def sums_of(self, start: int, stop: int) -> Tensor:
        """Features `start` to `stop` of all sums."""
        return self.sums[:, start:stop].to(torch.float64)

    def deviations(self, centre: Tensor) -> Generator[Tensor, None, None]:
        """All sums less `centre` (K, 1), block by block, in memory that the next block reuses."""
        if self._deviations is not None:
            whole, self._deviations = self._deviations, None
            yield whole
            return
        blocks = self.blocks()
        width = max(stop - start for start, stop in blocks)
        scratch = self.scratch(self.size, width)
        for start, stop in blocks:
            sums = self.sums[:, start:stop]
            yield less(sums, centre, scratch[:, : stop - start])

    def scratch(self, *shape: int) -> Tensor:
        """Memory that is made once: to get it anew costs more than what is done with it."""
        return torch.empty(shape, dtype=torch.float64, device=self.sums.device)

    def block(self, start: int, stop: int) -> Tensor:
        """Features `start` to `stop` of all patterns; zeros where a pattern is not defined."""
        return zeros_unless(self.defined, self.sums_of(start, stop) / self.n)

    def spread(self, subtract_mean: bool) -> tuple[Tensor, Tensor]:
        """The mean over features of all sums, or zeros, and the length of what is left (K, 1)."""
        averages, lengths, largest = [], [], []
        # Some rows at a time stay in the inner cache, however often they are gone through.
        at_once = max(1, _ROW_VALUES // self.features)
        scratch = self.scratch(min(at_once, self.size), self.features)
        for rows in torch.split(self.sums, at_once):
            kept = scratch[: len(rows)]
            narrow = rows.dtype is not torch.float64 and not rows.requires_grad
            values = kept.copy_(rows) if narrow else rows.to(torch.float64)
            largest.append(largest_magnitude(rows).squeeze(1))
            average = torch.zeros_like(values[:, :1])
            if subtract_mean:
                average = values.mean(1, keepdim=True)
                values = less(values, average, kept)
                # Few enough to be kept for `deviations`, which gives them away.
                self._deviations = values if len(rows) == self.size else None
            averages.append(average)
            lengths.append(torch.linalg.vector_norm(values, dim=1, keepdim=True))
        # What is found on the way need not be looked for again.
        self._largest = torch.cat(largest)
        return torch.cat(averages), torch.cat(lengths)


def largest_magnitude(rows: Tensor) -> Tensor:
    """The largest absolute value of each row (K, 1), without a copy of the rows."""
    largest, smallest = rows.amax(1, keepdim=True), rows.amin(1, keepdim=True)
    return torch.maximum(largest.to(torch.float64), -smallest.to(torch.float64))


def less(values: Tensor, subtrahend: Tensor, out: Tensor) -> Tensor:
    """`values - subtrahend` in float64, in `out` unless autograd asks for it: memory costs time."""
    if values.requires_grad:
        return values.to(torch.float64) - subtrahend
    if values.dtype is torch.float64:
        return torch.sub(values, subtrahend, out=out)
    return out.copy_(values).sub_(subtrahend)


def zeros_unless(defined: Tensor, rows: Tensor) -> Tensor:
    """Rows (K, D), zeros where they are not `defined` (K,), whatever they hold."""
    # Nearly always all are, which is cheaper to know than to fill.
    if not torch.compiler.is_compiling() and bool(defined.all()):
        return rows
    return rows.masked_fill(~defined.unsqueeze(1), 0.0)


def about_centroid(rows: Tensor, defined: Tensor, scale: Tensor | None = None) -> Tensor:
    """Rows less the mean of the defined ones: distances stay, and rounding is relative to them.

    With a `scale` (K, 1) of the rows this is done to the scaled ones. Rows are changed in place.
    """
    weights = (defined.to(torch.float64) / defined.sum().clamp(min=1)).unsqueeze(0)
    if scale is None:
        return less(rows, weights @ rows, rows)
    centroid = (weights * scale.mT) @ rows
    if rows.requires_grad:
        return rows * scale - centroid
    return torch.addcmul(-centroid, rows, scale, out=rows)


def add_gram(gram: Tensor, rows: Tensor) -> None:
    """Add rows @ rows.T to `gram`, of which only the upper triangle is kept up.

    Wide panels are fast, narrow ones waste less below the diagonal: so there are both.
    """
    for start in range(0, len(rows), _PANEL):
        stop = min(start + _PANEL, len(rows))
        for a in range(start, stop, _ROWS):
            b = min(a + _ROWS, stop)
            gram[a:b, a:stop].addmm_(rows[a:b], rows[a:stop].mT)
        if stop < len(rows):
            gram[start:stop, stop:].addmm_(rows[start:stop], rows[stop:].mT)


def pairwise(
    gram: Tensor, defined: Tensor, distance: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Tensor:
    """The matrix of `distance` of each pair's two squares and product, from the upper triangle."""
    own = gram.diagonal().clone()
    # In the place of what has been read, for fresh memory costs more than all that follows.
    result = torch.empty_like(gram) if gram.requires_grad else gram
    # Some rows at a time stay in a cache.
    for start in range(0, len(gram), _PANEL):
        stop = min(start + _PANEL, len(gram))
        part = distance(own[start:stop].unsqueeze(1), own[start:], gram[start:stop, start:])
        upper = part.triu(1)
        size = stop - start
        result[start:stop, start:stop] = upper[:, :size] + upper[:, :size].mT
        if stop < len(gram):
            result[start:stop, stop:] = upper[:, size:]
            result[stop:, start:stop] = upper[:, size:].mT
    return nan_unless(defined, result)


def finished(distances: Tensor, defined: Tensor) -> Tensor:
    """Symmetric from the upper triangle, zeros on the diagonal, NaN where not defined."""
    upper = distances.triu(1)
    return nan_unless(defined, upper + upper.mT)


def nan_unless(defined: Tensor, distances: Tensor) -> Tensor:
    """Distances (K, K), NaN for pairs that are not both `defined` (K,)."""
    if not torch.compiler.is_compiling() and bool(defined.all()):
        return distances
    return torch.where(defined.unsqueeze(0) & defined.unsqueeze(1), distances, torch.nan)
