"""Policies and retrieval against torch_world, each update and call on one batch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from dynmetrics.control import SPL, ActionSmoothness, StepsToSuccess, SuccessRate
from dynmetrics.retrieval import RecallAtK, TopKAccuracy
from tests.benchmarks.measuring import Row, compare

NAN = float("nan")


def run() -> list[Row]:
    """All of it."""
    return [*policies(), *rankings()]


def policies() -> list[Row]:
    """One update of episodes."""
    n, steps = 1024, 200
    generator = torch.Generator().manual_seed(0)
    success = torch.rand(n, steps, generator=generator) < 0.01
    path = torch.rand(n, steps, 3, generator=generator).cumsum(1)
    actions = torch.rand(n, steps, 8, generator=generator)
    ever, goal = success.any(1), path[:, -1]
    return [
        against("SuccessRate.update", SuccessRate().update, "success_rate", (ever,), calls=20),
        against(
            "StepsToSuccess.update",
            StepsToSuccess(max_steps=steps).update,
            "first_success",
            (success,),
        ),
        against("SPL.update", SPL().update, "spl", (ever, path, goal)),
        against("ActionSmoothness.update", ActionSmoothness().update, "smoothness", (actions,)),
    ]


def rankings() -> list[Row]:
    """One matrix of similarities, one batch of logits, and pairs from embeddings to recalls."""
    generator = torch.Generator().manual_seed(0)
    queries, gallery = torch.randn(2, 4000, 128, generator=generator)
    similarity = queries @ gallery.T
    target = torch.randint(1000, (1024,), generator=generator)
    logits = torch.randn(1024, 1000, generator=generator)

    def recall_of_pairs() -> None:
        metric = RecallAtK(metric="dot")
        metric.update(queries=queries, gallery=gallery)
        metric.compute()

    ranked = partial(RecallAtK().update, similarity=similarity)
    recall = peer_of("recall_at_k")
    whole = recall and (lambda: recall(queries @ gallery.T))
    return [
        row("RecallAtK.update (4000, 4000)", ranked, recall and partial(recall, similarity)),
        row("RecallAtK of 4000 pairs (D = 128)", recall_of_pairs, whole),
        against(
            "TopKAccuracy(k=5).update (1024, 1000)",
            TopKAccuracy(k=5).update,
            "topk_accuracy",
            (logits, target),
            k=5,
        ),
    ]


def peer_of(name: str) -> Callable[..., Any] | None:
    """A metric of torch_world, if it is installed."""
    try:
        function: Callable[..., Any] = getattr(importlib.import_module("torch_world.metrics"), name)
    except ImportError:
        return None
    return function


def against(
    name: str,
    update: Callable[..., Any],
    peer: str,
    inputs: tuple[torch.Tensor, ...],
    calls: int = 3,
    **options: Any,
) -> Row:
    """Our update and the peer's function of the same inputs."""
    function = peer_of(peer)
    theirs = function and partial(function, *inputs, **options)
    return row(name, partial(update, *inputs), theirs, calls)


def row(
    name: str, ours: Callable[[], Any], theirs: Callable[[], Any] | None, calls: int = 1
) -> Row:
    """`compare`, or a row that says that the peer is not there."""
    if theirs is None:
        return Row(name, "torch_world: not installed", NAN, NAN, NAN, NAN, NAN)
    return compare(name, "torch_world", ours, theirs, rounds=11, calls=calls)
