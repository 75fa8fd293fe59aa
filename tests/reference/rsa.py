"""Representational similarity by the definitions, pair by pair in float64.

References: Kriegeskorte, Mur and Bandettini 2008 (RDMs), Walther et al. 2016 (crossnobis), Nili et
al. 2014 (noise ceilings), Schuett et al. 2023 (rho-a), Diedrichsen et al. 2021 (whitening), Cichy
et al. 2019 (the two recipes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import nan, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


# ---------------------------------------------------------------------------- correlations


def ranks(x: Any) -> Array:
    """Average ranks: as many as are smaller, and the middle of those that are equal."""
    values = np.asarray(x, dtype=np.float64)
    return np.array(
        [nan if v != v else (values < v).sum() + ((values == v).sum() + 1) / 2 for v in values]
    )


def pearson(x: Any, y: Any) -> float:
    """Pearson's correlation; NaN if either vector is constant up to rounding."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(x) < 2:
        return nan
    a, b = x - x.mean(), y - y.mean()
    for whole, part in ((x, a), (y, b)):
        if sqrt(part @ part) <= 2.3e-16 * sqrt(len(x)) * np.abs(whole).max():
            return nan
    return float(a @ b / sqrt((a @ a) * (b @ b)))


def cosine(x: Any, y: Any) -> float:
    """The cosine; NaN for a vector of zeros."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    length = sqrt((x @ x) * (y @ y))
    return float(x @ y / length) if length else nan


def spearman(x: Any, y: Any) -> float:
    return pearson(ranks(x), ranks(y))


def rho_a(x: Any, y: Any) -> float:
    a, b = ranks(x), ranks(y)
    n = len(a)
    if n < 2 or len(set(a)) == 1 or len(set(b)) == 1:
        return nan
    return float(12 * ((a - a.mean()) * (b - b.mean())).sum() / (n**3 - n))


def kendall(x: Any, y: Any, variant: str) -> float:
    """Tau-"a" or tau-"b", over all pairs of entries."""
    difference = pairs = untied_x = untied_y = 0
    for i, j in combinations(range(len(x)), 2):
        a, b = np.sign(x[i] - x[j]), np.sign(y[i] - y[j])
        difference += a * b
        pairs += 1
        untied_x += a != 0
        untied_y += b != 0
    if not untied_x or not untied_y:
        return nan
    return float(difference / (pairs if variant == "a" else sqrt(untied_x * untied_y)))


def whitened(x: Any, y: Any, subtract_mean: bool) -> float:
    """Cosine of the double-centred matrices of two RDM vectors."""
    grams = []
    for vector in (x, y):
        vector = np.asarray(vector, dtype=np.float64)
        matrix = square(vector - vector.mean() if subtract_mean else vector)
        centring = np.eye(len(matrix)) - 1 / len(matrix)
        grams.append(-0.5 * (centring @ matrix @ centring).ravel())
    return cosine(*grams)


COMPARISONS: dict[str, Callable[[Any, Any], float]] = {
    "spearman": spearman,
    "rho-a": rho_a,
    "pearson": pearson,
    "cosine": cosine,
    "kendall-tau-a": lambda x, y: kendall(x, y, "a"),
    "kendall-tau-b": lambda x, y: kendall(x, y, "b"),
    "whitened-cosine": lambda x, y: whitened(x, y, subtract_mean=False),
    "whitened-pearson": lambda x, y: whitened(x, y, subtract_mean=True),
}


def compare(x: Any, y: Any, method: str = "spearman", drop_nan: bool = False) -> float:
    """Two RDM vectors; NaN propagates unless the pairs that hold it are dropped."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    finite = ~(np.isnan(x) | np.isnan(y))
    if not finite.all() and not drop_nan:
        return nan
    return float(COMPARISONS[method](x[finite], y[finite]))


# ---------------------------------------------------------------------------- dissimilarities


def upper(matrix: Any) -> Array:
    """The strict upper triangle, row by row."""
    matrix = np.asarray(matrix, dtype=np.float64)
    return np.array([matrix[i, j] for i, j in combinations(range(len(matrix)), 2)])


def square(vector: Any) -> Array:
    size = round((1 + sqrt(1 + 8 * len(vector))) / 2)
    matrix = np.zeros((size, size))
    for value, (i, j) in zip(vector, combinations(range(size), 2), strict=True):
        matrix[i, j] = matrix[j, i] = value
    return matrix


def distance(x: Array, y: Array, method: str) -> float:
    """The dissimilarity of two patterns."""
    if method == "correlation":
        return 1 - pearson(x, y)
    if method == "cosine":
        return 1 - cosine(x, y)
    if method == "cityblock":
        return float(np.abs(x - y).sum())
    squares = float(((x - y) ** 2).sum())
    return {
        "euclidean": sqrt(squares) if squares == squares else nan,
        "sqeuclidean": squares,
        "sqeuclidean-per-feature": squares / len(x),
    }[method]


def rdm(patterns: Any, method: str = "correlation") -> Array:
    """(K, D) to (K, K), NaN in row and column where the distance of a pattern to itself is NaN."""
    patterns = np.asarray(patterns, dtype=np.float64)
    matrix = np.zeros((len(patterns), len(patterns)))
    for i, x in enumerate(patterns):
        for j, y in enumerate(patterns):
            value = distance(x, y, method)
            matrix[i, j] = value if i != j or value != value else 0.0
    return matrix


def condition_means(patterns: Any, conditions: Sequence[Any], ids: Sequence[Any]) -> Array:
    """The mean pattern of each id, a row of NaN for one that is never shown."""
    patterns = np.asarray(patterns, dtype=np.float64)
    patterns = patterns.reshape(len(patterns), int(np.prod(patterns.shape[1:])))
    means = np.full((len(ids), patterns.shape[1]), nan)
    for row, name in enumerate(ids):
        mine = [p for p, c in zip(patterns, conditions, strict=True) if c == name]
        if mine:
            means[row] = np.mean(mine, axis=0)
    return means


def crossnobis(
    patterns: Any, conditions: Sequence[Any], folds: Sequence[int], ids: Sequence[Any],
    precision: Any = None,
) -> Array:  # fmt: skip
    """Each fold against the mean of all presentations of the others, averaged over folds."""
    patterns = np.asarray(patterns, dtype=np.float64)
    weight = np.eye(patterns.shape[1]) if precision is None else np.asarray(precision)
    conditions, fold_of = list(conditions), np.asarray(folds)
    matrix = np.full((len(ids), len(ids)), nan)
    for i, a in enumerate(ids):
        for j, b in enumerate(ids):
            values = []
            for fold in sorted(set(folds)):
                differences = []
                for inside in (fold_of == fold, fold_of != fold):
                    x = [
                        p
                        for p, c, f in zip(patterns, conditions, inside, strict=True)
                        if f and c == a
                    ]
                    y = [
                        p
                        for p, c, f in zip(patterns, conditions, inside, strict=True)
                        if f and c == b
                    ]
                    if x and y:
                        differences.append(np.mean(x, axis=0) - np.mean(y, axis=0))
                if len(differences) == 2:
                    test, train = differences
                    values.append(train @ weight @ test / patterns.shape[1])
            if values:
                matrix[i, j] = np.mean(values)
    return matrix


# ---------------------------------------------------------------------------- brains


def ceiling(vectors: Any, method: str = "spearman", drop_nan: bool = False) -> tuple[Array, Array]:
    """Each subject with the plain mean of all, and with that of the others."""
    vectors = np.asarray(vectors, dtype=np.float64)
    mean = np.nanmean if drop_nan else np.mean
    if len(vectors) < 2:
        return np.full(len(vectors), nan), np.full(len(vectors), nan)
    everyone = mean(vectors, axis=0)
    upper_bounds = [compare(v, everyone, method, drop_nan) for v in vectors]
    lower_bounds = [
        compare(v, mean(np.delete(vectors, s, axis=0), axis=0), method, drop_nan)
        for s, v in enumerate(vectors)
    ]
    return np.array(upper_bounds), np.array(lower_bounds)


def score(
    model: Any, brain: Any, recipe: str = "mean-rdm", method: str = "spearman",
    drop_model_nan: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """All numbers for a model RDM vector (P,) and a brain (S, Tb, P) without NaN.

    Pairs that are NaN in the model are left out of everything, ceilings included, or make all
    comparisons NaN. Comparisons are averaged over brain time within a subject before squaring.
    """
    model, brain = np.asarray(model, dtype=np.float64), np.asarray(brain, dtype=np.float64)
    n_pairs = int((~np.isnan(model)).sum())
    if drop_model_nan:
        finite = ~np.isnan(model)
        model, brain = model[finite], brain[..., finite]
    times = range(brain.shape[1])
    rho = np.array([np.mean([compare(model, s[t], method) for t in times]) for s in brain])
    mean = np.mean([compare(model, brain[:, t].mean(0), method) for t in times])
    bounds = [ceiling(brain[:, t], method) for t in times]
    upper_bounds, lower_bounds = (np.mean([b[side] for b in bounds], axis=0) for side in (0, 1))
    result = {
        "score_mean_rdm": percent(float(mean**2), float(upper_bounds.mean())),
        "score_algonauts2019": percent(float((rho**2).mean()), float((upper_bounds**2).mean())),
        "rho": rho.mean(),
        "rho_per_subject": rho,
        "rho_mean_rdm": mean,
        "r2": (rho**2).mean(),
        "ceiling_upper": upper_bounds.mean(),
        "ceiling_lower": lower_bounds.mean(),
        "ceiling_upper_r2": (upper_bounds**2).mean(),
        "ceiling_lower_r2": (lower_bounds**2).mean(),
        "n_pairs": n_pairs,
    }
    by_recipe = {
        "mean-rdm": result["score_mean_rdm"],
        "algonauts2019": result["score_algonauts2019"],
        "none": 100 * result["r2"],
    }
    return {"score": by_recipe[recipe], **result}


def percent(explained: float, bound: float) -> float:
    return float(100 * explained / bound) if bound > 0 else nan
