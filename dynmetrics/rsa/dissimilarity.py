"""Dissimilarities between the mean patterns of conditions.

The Gram matrix is added up over blocks of features, so nothing of the size of the patterns is
copied, and only where j >= i, which halves the work.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, check_tensor, describe, refuse

DISSIMILARITIES = (
    "correlation",
    "cosine",
    "euclidean",
    "sqeuclidean",
    "sqeuclidean-per-feature",
    "cityblock",
    "crossnobis",
)
_ROWS = 128
_BLOCK_VALUES = 1 << 19
_LEAST_WIDTH = 256
_CLOSE = 1e-5


def rdm(
    patterns: Tensor, method: str = "correlation", *, precision: Tensor | None = None
) -> Tensor:
    r"""Representational dissimilarity matrix: how different each pattern is from each other one.

    With patterns :math:`x_i` of D features: "correlation" is 1 minus Pearson's r (0 to 2),
    "cosine" 1 minus the cosine, "euclidean" the distance, "sqeuclidean" its square,
    "sqeuclidean-per-feature" its square over D (which rsatoolbox calls "euclidean"), "cityblock"
    the sum of absolute differences, and "crossnobis" the squared distance per feature,
    cross-validated over folds: unbiased, so noise alone gives values around 0, on either side.

    Args:
        patterns: (K, ...), one pattern per condition, any real dtype; for "crossnobis"
            (F, K, ...), one pattern per fold and condition. Trailing axes are features.
        method: one of the above.
        precision: (D, D), the inverse noise covariance for "crossnobis"; the identity if None.

    Returns:
        (K, K), float64, symmetric, with a diagonal of zeros. The row and column of a pattern
        without a distance are NaN, the diagonal included: a pattern that holds NaN; one that is
        constant up to the rounding of its dtype under "correlation"; one of zeros under "cosine".
        Correlation and cosine distances within 64 eps D of 0 are exactly 0, so that rounding is
        never ranked.

    Raises:
        ValueError: for an unknown method and for shapes that do not fit.

    References:
        Kriegeskorte, Mur and Bandettini (2008); Walther et al. (2016) for crossnobis. Equal to
        SciPy's `pdist` and to rsatoolbox 0.3.2 to 1e-9.

    Example:
        >>> import torch
        >>> from dynmetrics.rsa import rdm
        >>> patterns = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 2.0, 1.0]])
        >>> rdm(patterns).round(decimals=6)
        tensor([[0., 0., 2.],
                [0., 0., 2.],
                [2., 2., 0.]], dtype=torch.float64)
    """
    check_tensor("patterns", patterns)
    check_choice("method", method, DISSIMILARITIES)
    axes = 2 if method == "crossnobis" else 1
    if patterns.ndim <= axes or 0 in patterns.shape:
        expected = "(F, K, ...)" if axes == 2 else "(K, ...)"
        raise refuse("patterns", f"patterns {expected} with features", describe(patterns))
    eps = rounding_of(patterns.dtype)
    sums = patterns.flatten(axes)
    sums = sums if axes == 2 else sums.unsqueeze(0)
    check_precision(precision, method, sums.shape[-1])
    counts = torch.ones(sums.shape[:2], dtype=torch.int64, device=sums.device)
    return rdm_of_sums(sums, counts, method, eps, precision)


def rounding_of(dtype: torch.dtype) -> float:
    """The relative rounding of values that arrive in `dtype`; integers become float64."""
    return torch.finfo(dtype if dtype.is_floating_point else torch.float64).eps


def check_precision(precision: Tensor | None, method: str, features: int | None = None) -> None:
    """Refuse a precision matrix that no method would use, or of a wrong shape."""
    if precision is None:
        return
    check_tensor("precision", precision)
    if method != "crossnobis":
        raise refuse("precision", f"None for {method!r}", describe(precision))
    shape = tuple(precision.shape)
    size = features if features is not None else shape[0] if shape else 0
    if shape != (size, size):
        raise refuse("precision", f"the shape ({size}, {size})", describe(precision))


def rdm_of_sums(
    sums: Tensor, counts: Tensor, method: str, eps: float, precision: Tensor | None = None
) -> Tensor:
    """The RDM (K, K) of the condition means sums / counts: sums (F, K, D), counts (F, K)."""
    if method == "crossnobis":
        return crossnobis_distances(sums, counts, precision)
    means = Means(sums[0], counts[0])
    if method in ("correlation", "cosine"):
        return angular_distances(means, method == "correlation", eps)
    if method == "cityblock":
        return cityblock_distances(means)
    squared = exact_where_close(squared_distances(means), means)
    if method == "euclidean":
        return squared.sqrt()
    return squared / sums.shape[-1] if method == "sqeuclidean-per-feature" else squared


class Means:
    """Mean patterns in float64, made a block of features at a time."""

    def __init__(self, sums: Tensor, counts: Tensor) -> None:
        self.sums = sums
        self.n = counts.clamp(min=1).to(torch.float64).unsqueeze(1)
        self.size, self.features = sums.shape
        # The largest value is NaN or infinite if any value is.
        largest, smallest = sums.amax(1).to(torch.float64), sums.amin(1).to(torch.float64)
        self.largest_sum = torch.maximum(largest, -smallest)
        self.defined = (counts > 0) & self.largest_sum.isfinite()

    def blocks(self) -> list[tuple[int, int]]:
        """Ranges of features, so narrow that a block stays in a cache."""
        width = max(_LEAST_WIDTH, _BLOCK_VALUES // self.size)
        return [(a, min(a + width, self.features)) for a in range(0, self.features, width)]

    def sums_of(self, start: int, stop: int) -> Tensor:
        """Features `start` to `stop` of all sums."""
        return self.sums[:, start:stop].to(torch.float64)

    def block(self, start: int, stop: int) -> Tensor:
        """Features `start` to `stop` of all patterns; zeros where a pattern is not defined."""
        return zeros_unless(self.defined, self.sums_of(start, stop) / self.n)


def zeros_unless(defined: Tensor, rows: Tensor) -> Tensor:
    """Rows (K, D), zeros where they are not `defined` (K,), whatever they hold."""
    # Nearly always all are, which is cheaper to know than to fill.
    if not torch.compiler.is_compiling() and bool(defined.all()):
        return rows
    return rows.masked_fill(~defined.unsqueeze(1), 0.0)


def angular_distances(means: Means, subtract_mean: bool, eps: float) -> Tensor:
    """1 - cosine between patterns, or between patterns less their own mean.

    A direction does not depend on a pattern's length, so the sums do as well as the means.
    """
    features, blocks = means.features, means.blocks()
    average = torch.zeros_like(means.n)
    if subtract_mean:
        average = means.sums.sum(1, keepdim=True, dtype=torch.float64) / features
    squares = torch.zeros_like(means.largest_sum)
    deviations = means.sums_of(0, 0)
    for start, stop in blocks:
        deviations = means.sums_of(start, stop) - average
        squares = squares + torch.linalg.vecdot(deviations, deviations)
    length = squares.sqrt()
    # What rounding leaves of a constant pattern is no direction.
    shortest = eps * features**0.5 * means.largest_sum if subtract_mean else 0.0
    defined = means.defined & (length > shortest)
    scale = torch.where(defined, 1 / length, 0.0).unsqueeze(1)
    gram = torch.zeros(means.size, means.size, dtype=torch.float64, device=length.device)
    for start, stop in blocks:
        if len(blocks) > 1:
            deviations = means.sums_of(start, stop) - average
        # In place where autograd does not ask for the deviations again: memory costs time here.
        directions = deviations * scale if deviations.requires_grad else deviations.mul_(scale)
        directions = zeros_unless(defined, directions)
        add_gram(gram, about_centroid(directions, defined))
    own = gram.diagonal() / 2
    rounding = 64 * torch.finfo(torch.float64).eps * features
    distances = own.unsqueeze(0) + own.unsqueeze(1) - gram
    distances = torch.nn.functional.hardshrink(distances, rounding).clamp(max=2.0)
    return finished(distances, defined)


def squared_distances(means: Means) -> Tensor:
    """Squared Euclidean distances."""
    gram = torch.zeros(means.size, means.size, dtype=torch.float64, device=means.sums.device)
    for start, stop in means.blocks():
        add_gram(gram, about_centroid(means.block(start, stop), means.defined))
    own = gram.diagonal()
    squared = own.unsqueeze(0) + own.unsqueeze(1) - 2 * gram
    return finished(squared.clamp(min=0.0), means.defined)


def cityblock_distances(means: Means) -> Tensor:
    """Sums of absolute differences."""
    distances = torch.zeros(means.size, means.size, dtype=torch.float64, device=means.sums.device)
    for start, stop in means.blocks():
        block = means.block(start, stop)
        distances = distances + torch.cdist(block, block, p=1.0)
    return finished(distances, means.defined)


def crossnobis_distances(sums: Tensor, counts: Tensor, precision: Tensor | None) -> Tensor:
    """Leave one fold out: the mean product of differences in this fold and in all the others.

    The others are averaged over presentations. A pair counts in the folds that have both of its
    conditions, inside and outside; it is NaN without such a fold.
    """
    size, features = sums.shape[1:]
    total, presentations = sums.sum(0), counts.sum(0)
    distances = torch.zeros(size, size, dtype=torch.float64, device=sums.device)
    folds = torch.zeros_like(distances)
    for fold in range(len(sums)):
        test = Means(sums[fold], counts[fold])
        train = Means(total - sums[fold], presentations - counts[fold])
        defined = test.defined & train.defined
        inside = about_centroid(test.block(0, features), defined)
        outside = about_centroid(train.block(0, features), defined)
        if precision is not None:
            outside = outside @ precision.to(torch.float64)
        products = inside @ outside.mT
        own = products.diagonal()
        pairs = defined.unsqueeze(0) & defined.unsqueeze(1)
        difference = own.unsqueeze(0) + own.unsqueeze(1) - products - products.mT
        distances = distances + torch.where(pairs, difference, 0.0)
        folds = folds + pairs
    mean = distances / folds / features
    return finished(mean, folds.diagonal() > 0)


def about_centroid(rows: Tensor, defined: Tensor) -> Tensor:
    """Rows less the mean of the defined ones, in place: distances stay, rounding is relative."""
    weights = defined.to(torch.float64) / defined.sum().clamp(min=1)
    centroid = weights @ rows
    return rows - centroid if rows.requires_grad else rows.sub_(centroid)


def add_gram(gram: Tensor, rows: Tensor) -> None:
    """Add rows @ rows.T to `gram`, of which only the upper triangle is kept up."""
    for start in range(0, len(rows), _ROWS):
        stop = min(start + _ROWS, len(rows))
        gram[start:stop, start:].addmm_(rows[start:stop], rows[start:].mT)


def finished(distances: Tensor, defined: Tensor) -> Tensor:
    """Symmetric from the upper triangle, zeros on the diagonal, NaN where not defined."""
    upper = distances.triu(1)
    both = upper + upper.mT
    if not torch.compiler.is_compiling() and bool(defined.all()):
        return both
    return torch.where(defined.unsqueeze(0) & defined.unsqueeze(1), both, torch.nan)


def exact_where_close(squared: Tensor, means: Means) -> Tensor:
    """Squared distances, from plain differences where they are tiny beside the spread of all.

    There the Gram form has lost digits; nobody should read or rank what is left.
    """
    if torch.compiler.is_compiling():
        return squared
    spread = squared.nan_to_num(0.0).amax(1)
    limit = _CLOSE * torch.maximum(spread.unsqueeze(0), spread.unsqueeze(1))
    close = (squared < limit).triu(1).nonzero()
    if not len(close):
        return squared
    pairs_at_once = max(1, 8 * _BLOCK_VALUES // means.features)
    exact = []
    for pairs in torch.split(close, pairs_at_once):
        i, j = pairs.unbind(1)
        difference = means.sums[i].to(torch.float64) / means.n[i]
        difference = difference - means.sums[j].to(torch.float64) / means.n[j]
        exact.append(difference.square().sum(1))
    i, j = close.unbind(1)
    values = torch.cat(exact)
    return squared.index_put((torch.cat([i, j]), torch.cat([j, i])), torch.cat([values, values]))
