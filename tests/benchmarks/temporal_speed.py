"""Accuracy for three k and three confidences over time, in one pass, against the usual ways."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Any

import torch
from torch import Tensor
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

from dynmetrics import MetricSuite
from dynmetrics.temporal import TemporalAccuracy, TemporalConfidence, first_label, row_statistics
from tests.benchmarks.measuring import Row, compare
from tests.benchmarks.temporal_accuracy_speed import accuracy_by_loop

SHAPES = [(256, 20, 100), (64, 30, 1000), (512, 50, 10)]
KS = (1, 3, 5)
COLD_BYTES = 1 << 27


def run() -> list[Row]:
    """One update of the whole job, a quarter of the labels masked."""
    rows = []
    for b, t, c in SHAPES:
        generator = torch.Generator().manual_seed(0)
        logits = 3 * torch.randn(b, t, c, generator=generator)
        labels = torch.randint(c, (b, t), generator=generator)
        labels[torch.rand(b, t, generator=generator) < 0.25] = -1
        name = f"top-1/3/5 and three confidences {(b, t, c)}"
        ours = fused(logits, labels)
        functions = partial(separate_functions, logits, labels)
        rows.append(compare(name, "separate functions, t by t", ours, functions, goal=">= 6"))
        objects = objects_per_step(logits, labels)
        row = compare(name, "T x 6 torchmetrics objects", ours, objects, rounds=11, goal=">= 30")
        rows.append(row)
        rows.append(compare(name, "logits.sum(), hot", ours, logits.sum, rounds=41, goal=">= 0.11"))
        rows.append(against_cold_sum(name, logits, labels))
        compiled = torch.compile(pure_job, fullgraph=True)
        kernel = f"row_statistics, counted {(b, t, c)}"
        plain = partial(pure_job, logits, labels)
        compiled_job = partial(compiled, logits, labels)
        rows.append(compare(kernel, "compiled in one graph", plain, compiled_job, rounds=41))
    return rows


def fused(logits: Tensor, labels: Tensor) -> Callable[[], None]:
    """Our update: the rows once, then two metrics."""
    suite = MetricSuite(
        {"accuracy": TemporalAccuracy(top_k=KS), "confidence": TemporalConfidence()}
    )

    def update() -> None:
        suite.update(preds=row_statistics(logits, labels), target=None)

    return update


def pure_job(logits: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """The same numbers without metrics, as a function that compiles."""
    rows = row_statistics(logits, labels)
    hits = torch.stack([rows.hits(k) for k in KS]).sum(1)
    known = (rows.labels >= 0).double()
    return (
        hits,
        rows.log_guess.exp().double().sum(0),
        (rows.log_label.exp() * known).sum(0),
        (rows.log_first.exp() * (rows.first_labels >= 0)).sum(0),
    )


def against_cold_sum(name: str, logits: Tensor, labels: Tensor) -> Row:
    """Both read logits that are in no cache, as those of a real network are."""
    copies = max(2, COLD_BYTES // (logits.numel() * logits.element_size()))
    buffers = [logits.clone() for _ in range(copies)]
    updates, sums = cycle([fused(x, labels) for x in buffers]), cycle(x.sum for x in buffers)
    return compare(
        name, "logits.sum(), cold", lambda: next(updates)(), lambda: next(sums)(), rounds=61,
        goal=">= 0.11",
    )  # fmt: skip


# ---------------------------------------------------------------------------- the usual ways


def confidence(logits: Tensor, index: Tensor | None = None) -> Tensor:
    """Softmax, then the maximum, or the probability at an index that may be invalid."""
    probabilities = torch.softmax(logits, -1)
    if index is None:
        return probabilities.max(-1).values
    invalid = (index < 0) | (index >= logits.shape[-1])
    chosen = probabilities.gather(-1, index.masked_fill(invalid, 0).unsqueeze(-1)).squeeze(-1)
    return chosen.masked_fill(invalid, 0.0)


def separate_functions(logits: Tensor, labels: Tensor) -> list[Any]:
    """One function for every quantity, each with a softmax of its own, as DynVision has them."""
    best = logits.softmax(-1).topk(max(KS), -1).indices == labels.unsqueeze(-1)
    topk = [best[..., :k].any(-1).float().mean(0) for k in KS]
    confidences = [
        confidence(logits).mean(0),
        confidence(logits, labels).mean(0),
        confidence(logits, first_label(labels)).mean(0),
    ]
    return [accuracy_by_loop(logits.softmax(-1), labels), topk, confidences]


def objects_per_step(logits: Tensor, labels: Tensor) -> Callable[[], None]:
    """Three accuracies and three means of torchmetrics for every timestep."""
    steps, classes = logits.shape[1:]
    accuracies = [
        [
            MulticlassAccuracy(
                classes, top_k=k, average="micro", ignore_index=-1, validate_args=False
            )
            for k in KS
        ]
        for _ in range(steps)
    ]
    means = [[MeanMetric(nan_strategy="ignore") for _ in range(3)] for _ in range(steps)]
    first = first_label(labels)

    def update() -> None:
        for t in range(steps):
            step, label = logits[:, t], labels[:, t]
            for metric in accuracies[t]:
                metric.update(step, label)
            values = confidence(step), confidence(step, label), confidence(step, first[:, t])
            for mean, value in zip(means[t], values, strict=True):
                mean.update(value)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        update()
    return update
