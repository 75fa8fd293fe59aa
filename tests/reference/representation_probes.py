"""Probes from their definitions: all rows at once, in float64, by other solvers than ours."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize

Array = np.ndarray[Any, Any]


def standardised(train: Array, other: Array) -> Array:
    """By mean and standard deviation (N - 1) of the train rows; constant features are 0."""
    sd = np.array([column.std(ddof=1) if len(column) > 1 else 0 for column in train.T])
    varies = np.array([len(set(column.tolist())) > 1 for column in train.T])
    result = np.zeros_like(other)
    result[:, varies] = (other[:, varies] - train[:, varies].mean(0)) / sd[varies]
    return result


def ridge_predictions(
    train_x: Array, train_y: Array, test_x: Array, ridge: float, penalize_bias: bool = False
) -> Array:
    """Targets (N, K) by the normal equations."""
    x = standardised(train_x, train_x)
    n, d = x.shape
    mean = train_y.mean(0)
    weights = np.linalg.solve(x.T @ x + ridge * n * np.eye(d), x.T @ (train_y - mean))
    intercept = mean / (1 + ridge) if penalize_bias else mean
    return np.asarray(standardised(train_x, test_x) @ weights + intercept)


def r2(predictions: Array, target: Array) -> float:
    scores = []
    for p, t in zip(predictions.T, target.T, strict=True):
        scores.append(1 - np.sum((t - p) ** 2) / np.sum((t - t.mean()) ** 2))
    return float(np.mean(scores))


def logistic_predictions(train_x: Array, train_y: Array, test_x: Array, ridge: float) -> Array:
    """Classes by multinomial logistic regression, minimised by SciPy."""
    classes = np.unique(train_y)
    x, places = standardised(train_x, train_x), np.searchsorted(classes, train_y)
    n, d = x.shape
    one_hot = np.eye(len(classes))[places]

    def objective(flat: Array) -> tuple[float, Array]:
        w = flat.reshape(d + 1, -1)
        scores = x @ w[:d] + w[d]
        scores = scores - scores.max(1, keepdims=True)
        log_shares = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        value = -np.mean(log_shares[np.arange(n), places]) + ridge * np.sum(w[:d] ** 2)
        rest = (np.exp(log_shares) - one_hot) / n
        gradient = np.concatenate([x.T @ rest + 2 * ridge * w[:d], rest.sum(0)[None]])
        return float(value), gradient.ravel()

    start = np.zeros((d + 1) * len(classes))
    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9}
    w = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
    w = w.reshape(d + 1, -1)
    return np.asarray(classes[np.argmax(standardised(train_x, test_x) @ w[:d] + w[d], axis=1)])


def accuracy(predictions: Array, target: Array, average: str = "micro") -> float:
    if not len(target):
        return float("nan")
    if average == "micro":
        return float(np.mean(predictions == target))
    return float(np.mean([np.mean(predictions[target == c] == c) for c in np.unique(target)]))


def knn_predictions(
    bank: Array,
    labels: Array,
    queries: Array,
    k: int,
    temperature: float = 0.07,
    center: bool = False,
    metric: str = "cosine",
    weights: str = "exp",
    bank_ids: Array | None = None,
    query_ids: Array | None = None,
) -> Array:
    """Classes by a vote of the nearest rows; of equal similarities the first row, then class."""
    if center:
        bank, queries = bank - bank.mean(0), queries - bank.mean(0)
    predictions = []
    for i, query in enumerate(queries):
        scored = []
        for j, row in enumerate(bank):
            if bank_ids is not None and query_ids is not None and bank_ids[j] == query_ids[i]:
                continue
            scored.append((-_similarity(query, row, metric), j))
        votes = np.zeros(int(labels.max()) + 1)
        nearest = sorted(scored)[:k]
        for minus, j in nearest:
            weight = {
                "exp": np.exp((nearest[0][0] - minus) / temperature),
                "uniform": 1.0,
                "inverse": 1 / (minus + (1 if metric == "cosine" else 0) + temperature),
            }[weights]
            votes[labels[j]] += weight
        predictions.append(int(np.argmax(votes)))
    return np.array(predictions)


def _similarity(a: Array, b: Array, metric: str) -> float:
    if metric == "euclidean":
        return -float(np.sqrt(np.sum((a - b) ** 2)))
    size = np.sqrt(np.sum(a**2)) * np.sqrt(np.sum(b**2)) if metric == "cosine" else 1.0
    return float(a @ b / size) if size else 0.0
