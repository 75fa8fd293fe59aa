"""Batches of logits and labels for the laws, uneven in all that may be uneven."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tests.contract import Batch

CLASSES = 6


def logits_and_labels(seed: int = 0, *, nan: bool = False, integer: bool = False) -> list[Batch]:
    """T, B and the form of labels and masks differ; one batch is empty, one all masked."""
    rng = np.random.default_rng(seed)
    batches: list[Batch] = []
    for b, t in ((4, 5), (1, 3), (0, 9), (6, 7), (3, 1), (2, 8)):
        scores = (
            rng.integers(-3, 4, (b, t, CLASSES)) if integer else rng.normal(0, 2, (b, t, CLASSES))
        )
        # Label 5 is rare, label 4 absent, label 7 beyond the classes; negative labels are masked.
        target = torch.tensor(rng.choice([-2, -1, 0, 1, 2, 3, 5], size=(b, t)))
        batches.append(
            {"preds": torch.tensor(scores, dtype=torch.float64), "target": target, "mask": None}
        )
    batches[3]["mask"] = torch.tensor(rng.random((6, 7)) < 0.7)
    batches[1]["target"] = torch.tensor([2])
    batches[4]["mask"] = torch.zeros(3, dtype=torch.bool)
    if nan:
        batches[0]["preds"][1, 2, 3] = torch.nan
        batches[4]["preds"][1, 0, 3] = torch.nan
    return batches


def as_arrays(batches: list[Batch]) -> list[tuple[Any, Any, Any]]:
    """The batches as NumPy sees them, in float64."""
    return [
        (
            b["preds"].double().numpy(),
            b["target"].numpy(),
            None if b["mask"] is None else b["mask"].numpy(),
        )
        for b in batches
    ]


def bad_inputs() -> list[Batch]:
    """Inputs that every metric of scores refuses."""
    logits, labels = torch.zeros(2, 3, CLASSES), torch.zeros(2, 3, dtype=torch.int64)
    return [
        {"preds": logits[0], "target": labels},
        {"preds": logits[..., :0], "target": labels},
        {"preds": logits[..., :1], "target": labels},
        {"preds": logits, "target": labels[:1]},
        {"preds": logits, "target": labels[:, :2]},
        {"preds": logits, "target": labels + 0.5},
        {"preds": logits, "target": labels.numpy()},
        {"preds": logits, "target": None},
        {"preds": {"a": logits}, "target": labels},
        {"preds": logits, "target": labels, "mask": labels},
        {"preds": logits, "target": labels, "mask": labels[0] > 0},
        {"preds": logits.to(torch.complex64), "target": labels},
        {"preds": logits, "target": labels.to("meta")},
    ]


def refused(make: Callable[..., Any], *options: dict[str, Any]) -> list[Callable[[], Any]]:
    """Constructor calls with each of the options."""
    return [lambda option=option: make(**option) for option in options]  # type: ignore[misc]
