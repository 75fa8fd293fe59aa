"""RankMe, kNN and linear probes against torch_world, faiss and scikit-learn.

Peers that are not installed are left out, with a line that says so. The time of a streaming metric
is that of all updates and `compute` together.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dynmetrics.representation import (
    KNNAccuracy,
    LinearProbe,
    RankMe,
    linear_probe,
    rankme,
)
from dynmetrics.representation.linear_classifier import fit_classifier
from tests.benchmarks.measuring import Row, compare

BATCH = 1024


def run() -> list[Row]:
    """All comparisons whose peers are there."""
    torch_world = _peer("torch_world.metrics")
    rows = _rankme(torch_world) + _ridge(torch_world) + _classes(torch_world) + _knn(torch_world)
    _precision()
    return rows


def _peer(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"left out, not installed: {name}")
        return None


def _streamed(metric: Any, features: Tensor, *more: Tensor, **options: Any) -> Any:
    metric.reset()
    for start in range(0, len(features), BATCH):
        rows = slice(start, start + BATCH)
        metric.update(features[rows], *(value[rows] for value in more), **options)
    return metric


def _decaying(n: int, d: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    scales = torch.logspace(0, -2, d)
    mixing = torch.randn(d, d, generator=generator) / d**0.5
    return (torch.randn(n, d, generator=generator) * scales) @ mixing


def _rankme(peer: Any) -> list[Row]:
    rows = []
    for (n, d), rounds in (((10_000, 512), 7), ((25_600, 768), 5), ((5000, 2048), 3)):
        z = _decaying(n, d)
        for products in ("float64", "float32"):
            metric = RankMe(products=products)

            def ours(metric: RankMe = metric, z: Tensor = z) -> Tensor:
                value: Tensor = _streamed(metric, z).compute()
                return value

            ours()
            share = z.numel() * 4 / metric.memory_bytes()
            name = f"RankMe {(n, d)}, products {products}, state 1/{share:.0f}"
            if peer is not None:
                theirs = partial(peer.rankme, z)
                rows.append(
                    compare(name, "torch_world", ours, theirs, rounds=rounds, goal=">= 2.5")
                )
    return rows


def _ridge(peer: Any) -> list[Row]:
    rows = []
    for n, d, k, rounds in ((50_000, 384, 8, 5), (20_000, 1024, 8, 3)):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(n, d, generator=generator)
        y = x @ torch.randn(d, k, generator=generator) + torch.randn(n, k, generator=generator)
        test_x, test_y = x[:1000], y[:1000]
        for products in ("float64", "float32"):
            metric = LinearProbe(task="regression", products=products)

            def ours(metric: LinearProbe = metric, x: Tensor = x, y: Tensor = y) -> Any:
                _streamed(metric, x, y, split="train")
                metric.update(x[:1000], y[:1000], split="test")
                return metric.compute()

            ours()
            share = x.numel() * 4 / metric.memory_bytes()
            name = f"ridge {(n, d, k)}, products {products}, state 1/{share:.0f}"
            if peer is not None:
                theirs = partial(peer.linear_probe, x, y, test_x, test_y)
                rows.append(
                    compare(name, "torch_world", ours, theirs, rounds=rounds, goal=">= 1.1")
                )
    return rows


def _classes(peer: Any) -> list[Row]:
    n, d, ridge = 10_000, 256, 1e-3
    rows = []
    for classes in (10, 100):
        generator = torch.Generator().manual_seed(0)
        x = _decaying(n, d)
        standard = (x - x.mean(0)) / x.std(0)
        scores = 3 * standard @ torch.randn(d, classes, generator=generator) / d**0.5
        noise = torch.rand(n, classes, generator=generator)
        y = (scores - (-noise.log()).log()).argmax(1)
        ours = partial(linear_probe, x, y, x[:10], y[:10], ridge)
        best = _objective(standard, y, *_fitted(x, y, ridge, 2000, torch.float64), ridge)
        excess = _objective(standard, y, *_fitted(x, y, ridge, 100, torch.float32), ridge) - best
        name = f"classification {(n, d)}, {classes} classes, excess {excess:.0e}"
        if peer is not None:
            theirs = partial(peer.linear_probe, x, y, x[:10], y[:10], ridge)
            goal = ">= 3" if classes == 10 else ">= 1"
            rows.append(compare(name, "torch_world", ours, theirs, rounds=5, goal=goal))
        rows += _scikit_learn(name, ours, standard, y, ridge, best)
    return rows


def _scikit_learn(
    name: str, ours: Callable[[], Any], standard: Tensor, y: Tensor, ridge: float, best: float
) -> list[Row]:
    """By its default tolerance, and by one that brings it as near to the minimum as ours."""
    peer = _peer("sklearn.linear_model")
    if peer is None:
        return []
    rows = []
    x, labels = standard.numpy(), y.numpy()
    for tolerance, goal in ((1e-4, ""), (1e-6, ">= 4")):
        model = peer.LogisticRegression(C=1 / (2 * len(x) * ridge), max_iter=5000, tol=tolerance)
        model.fit(x, labels)
        weights, intercept = torch.tensor(model.coef_).T.double(), torch.tensor(model.intercept_)
        excess = _objective(standard, y, weights, intercept, ridge) - best
        label = f"scikit-learn, tol {tolerance:.0e}, excess {excess:.0e}"
        theirs = partial(model.fit, x, labels)
        rows.append(compare(name, label, ours, theirs, rounds=3, goal=goal))
    return rows


def _fitted(
    x: Tensor, y: Tensor, ridge: float, iterations: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Weights on the standardised features, and intercepts."""
    linear = fit_classifier(x.to(dtype), y, ridge, iterations).linear
    return linear.weights * x.double().std(0).unsqueeze(1), linear.intercept


def _objective(x: Tensor, y: Tensor, weights: Tensor, intercept: Tensor, ridge: float) -> float:
    loss = torch.nn.functional.cross_entropy(x.double() @ weights + intercept.double(), y)
    return float(loss + ridge * weights.square().sum())


def _knn(peer: Any) -> list[Row]:
    n, d, k, classes = 50_000, 384, 20, 100
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(classes, d, generator=generator)
    rows = []
    for m, rounds in ((2048, 7), (10_000, 3)):
        labels = torch.randint(classes, (n + m,), generator=generator)
        x = 0.3 * centres[labels] + torch.randn(n + m, d, generator=generator)
        bank, queries = x[:n].contiguous(), x[n:].contiguous()
        metric = KNNAccuracy(k=k)
        _streamed(metric, bank, labels[:n], split="train")
        _streamed_more(metric, queries, labels[n:])
        name = f"kNN {n} x {d}, {m} queries"
        ours = partial(_uncached, metric)
        if peer is not None:
            theirs = partial(peer.knn_accuracy, bank, labels[:n], queries, labels[n:], k)
            rows.append(compare(name, "torch_world", ours, theirs, rounds=rounds, goal="> 1"))
        faiss = _peer("faiss")
        if faiss is not None:
            faiss.omp_set_num_threads(1)
            index = faiss.IndexFlatIP(d)
            index.add(torch.nn.functional.normalize(bank).numpy())
            unit = torch.nn.functional.normalize(queries).numpy()
            search = partial(index.search, unit, k)
            goal = ">= 0.83"
            rows.append(compare(name, "faiss IndexFlatIP", ours, search, rounds=rounds, goal=goal))
    return rows


def _streamed_more(metric: KNNAccuracy, queries: Tensor, target: Tensor) -> None:
    for start in range(0, len(queries), BATCH):
        rows = slice(start, start + BATCH)
        metric.update(queries[rows], target[rows], split="test")


def _uncached(metric: KNNAccuracy) -> Any:
    metric._computed = None
    return metric.compute()


def _precision() -> None:
    """RankMe from the streamed state against the singular values in float64."""
    for d, n in ((64, 1024), (512, 2048), (2048, 3072)):
        for kind in ("1e2", "1e4", "1e6", "1e8", f"rank {d // 16}", "rank 1"):
            z = _with_spectrum(kind, n, d)
            expected = rankme(z)
            errors = []
            for options, dtype in (({}, None), ({"state": "qr"}, torch.float32)):
                metric = RankMe(**options)  # type: ignore[arg-type]
                if dtype is not None:
                    metric.set_dtype(dtype)
                errors.append(abs(float(_streamed(metric, z).compute()) / expected - 1))
            print(f"RankMe D={d} {kind}: error {errors[0]:.1e}, qr in float32 {errors[1]:.1e}")


def _with_spectrum(kind: str, n: int, d: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if kind.startswith("rank"):
        spectrum = (torch.arange(d) < int(kind[5:])).double()
    else:
        spectrum = torch.logspace(0, -int(kind[2:]), d, dtype=torch.float64)
    left = torch.randn(n, d, dtype=torch.float64, generator=generator)
    right = torch.randn(d, d, dtype=torch.float64, generator=generator)
    features = (torch.linalg.qr(left).Q * spectrum) @ torch.linalg.qr(right).Q.T
    # Rounded to float32 they would not be of low rank any more.
    return features if kind.startswith("rank") else features.float()
