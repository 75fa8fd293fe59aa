"""Dissimilarities between the mean patterns of conditions.

The Gram matrix is added up over blocks of features, so nothing of the size of the patterns is
copied, and only where j >= i, which halves the work.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, check_tensor, describe, refuse
from dynmetrics.rsa.magnitudes import outlying_exponent, times_power_of_two
from dynmetrics.rsa.means import Means, about_centroid, add_gram, finished, pairwise, zeros_unless

DISSIMILARITIES = (
    "correlation",
    "cosine",
    "euclidean",
    "sqeuclidean",
    "sqeuclidean-per-feature",
    "cityblock",
    "crossnobis",
)
_WITHOUT_ARITHMETIC = (torch.bool, torch.uint16, torch.uint32, torch.uint64)
_CLOSE = 1e-5
_PAIR_VALUES = 1 << 22


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
        never ranked. Patterns of any magnitude will do, also where their squares have no float64;
        a distance that has none itself is infinite, or 0.

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
    if patterns.dtype in _WITHOUT_ARITHMETIC:
        patterns = patterns.to(torch.float64)
    sums = patterns.flatten(axes)
    sums = sums if axes == 2 else sums.unsqueeze(0)
    check_precision(precision, method)
    check_precision(precision, method, sums.shape[-1])
    counts = torch.ones(sums.shape[:2], dtype=torch.int64, device=sums.device)
    return rdm_of_sums(sums, counts, method, eps, precision)


def rounding_of(dtype: torch.dtype) -> float:
    """The relative rounding of values that arrive in `dtype`; integers become float64."""
    return torch.finfo(dtype if dtype.is_floating_point else torch.float64).eps


def check_precision(precision: Tensor | None, method: str, features: int | None = None) -> None:
    """Refuse a precision matrix that no method would use, of a wrong shape, or not finite.

    With `features` its numbers are not read.
    """
    if precision is None:
        return
    check_tensor("precision", precision)
    if method != "crossnobis":
        raise refuse("precision", f"None for {method!r}", describe(precision))
    shape = tuple(precision.shape)
    size = features if features is not None else shape[0] if shape else 0
    if shape != (size, size):
        raise refuse("precision", f"the shape ({size}, {size})", describe(precision))
    if features is None and not bool(precision.isfinite().all()):
        raise refuse("precision", "finite numbers", describe(precision))


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
    distances = euclidean_distances(means, squared=method != "euclidean")
    return distances / sums.shape[-1] if method == "sqeuclidean-per-feature" else distances


def angular_distances(means: Means, subtract_mean: bool, eps: float) -> Tensor:
    """1 - cosine between patterns, or between patterns less their own mean.

    A direction does not depend on a pattern's length, so the sums do as well as the means.
    """
    average, length = means.spread(subtract_mean)
    exponent = outlying_exponent(means.largest.detach())
    if exponent is not None:
        means = means.scaled(-exponent)
        average, length = means.spread(subtract_mean)
    # What rounding leaves of a constant pattern is no direction.
    shortest = eps * means.features**0.5 * means.largest if subtract_mean else 0.0
    defined = means.defined & (length.squeeze(1) > shortest)
    scale = torch.where(defined.unsqueeze(1), 1 / length, 0.0)
    gram = torch.zeros(means.size, means.size, dtype=torch.float64, device=length.device)
    for block in means.deviations(average):
        add_gram(gram, about_centroid(zeros_unless(defined, block), defined, scale))
    rounding = 64 * torch.finfo(torch.float64).eps * means.features

    def distance(one: Tensor, other: Tensor, product: Tensor) -> Tensor:
        halves = (one + other) / 2 - product
        return torch.nn.functional.hardshrink(halves, rounding).clamp(max=2.0)

    return pairwise(gram, defined, distance)


def euclidean_distances(means: Means, squared: bool) -> Tensor:
    """Euclidean distances or their squares."""
    exponent = means.exponent()
    scaled = means if exponent is None else means.scaled(-exponent)
    gram = torch.zeros(means.size, means.size, dtype=torch.float64, device=means.sums.device)
    for start, stop in means.blocks():
        add_gram(gram, about_centroid(scaled.block(start, stop), means.defined))

    def square(one: Tensor, other: Tensor, product: Tensor) -> Tensor:
        return (one + other - 2 * product).clamp(min=0.0)

    squares = pairwise(gram, means.defined, square)
    distances = squares if squared else squares.sqrt()
    if exponent is not None:
        distances = times_power_of_two(distances, 2 * exponent if squared else exponent)
    return exact_where_close(distances, squares, means, squared)


def cityblock_distances(means: Means) -> Tensor:
    """Sums of absolute differences."""
    exponent = means.exponent()
    if exponent is not None:
        # Nothing is squared here: only sums of the largest numbers of all need some room.
        exponent = torch.where(exponent > 900, 64, 0)
    means = means if exponent is None else means.scaled(-exponent)
    distances = torch.zeros(means.size, means.size, dtype=torch.float64, device=means.sums.device)
    for start, stop in means.blocks():
        block = means.block(start, stop)
        distances = distances + torch.cdist(block, block, p=1.0)
    if exponent is not None:
        distances = times_power_of_two(distances, exponent)
    return finished(distances, means.defined)


def crossnobis_distances(sums: Tensor, counts: Tensor, precision: Tensor | None) -> Tensor:
    """Leave one fold out: the mean product of differences in this fold and in all the others.

    The others are averaged over presentations. A pair counts in the folds that have both of its
    conditions, inside and outside; it is NaN without such a fold.
    """
    size, features = sums.shape[1:]
    exponent = outlying_exponent(sums.detach().abs().nan_to_num(0.0, 0.0, 0.0).amax().double())
    sums = sums if exponent is None else times_power_of_two(sums.double(), -exponent)
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
    mean = mean if exponent is None else times_power_of_two(mean, 2 * exponent)
    return finished(mean, folds.diagonal() > 0)


def exact_where_close(distances: Tensor, squares: Tensor, means: Means, squared: bool) -> Tensor:
    """Distances, from plain differences where `squares` are tiny beside the spread of all.

    There the Gram form has lost digits; nobody should read or rank what is left.
    """
    if torch.compiler.is_compiling():
        return distances
    spread = squares.detach().nan_to_num(0.0).amax(1)
    limit = _CLOSE * torch.maximum(spread.unsqueeze(0), spread.unsqueeze(1))
    close = (squares < limit).triu(1).nonzero()
    if not len(close):
        return distances
    pairs_at_once = max(1, _PAIR_VALUES // means.features)
    exact = []
    for pairs in torch.split(close, pairs_at_once):
        i, j = pairs.unbind(1)
        difference = means.sums[i].to(torch.float64) / means.n[i]
        difference = difference - means.sums[j].to(torch.float64) / means.n[j]
        exponent = outlying_exponent(difference.detach().abs().amax(1))
        if exponent is not None:
            difference = times_power_of_two(difference, -exponent.unsqueeze(1))
        values = difference.square().sum(1)
        values = values if squared else values.sqrt()
        if exponent is not None:
            values = times_power_of_two(values, 2 * exponent if squared else exponent)
        exact.append(values)
    i, j = close.unbind(1)
    both = torch.cat([*exact, *exact])
    return distances.index_put((torch.cat([i, j]), torch.cat([j, i])), both)
