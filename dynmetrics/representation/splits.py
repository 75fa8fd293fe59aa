"""Rows of a train and a test split, kept until they are asked for; what probes have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import (
    check_choice,
    check_positive_int,
    check_tensor,
    describe,
    refuse,
    whole_numbers,
)
from dynmetrics.core.metric import StreamingMetric
from dynmetrics.core.numerics import ratio
from dynmetrics.core.rows import lowest, row_priorities
from dynmetrics.core.state import BY_DATA, stacked_rows
from dynmetrics.representation.features import check_number, checked_features

SPLITS = ("train", "test")
OVERFLOWS = ("error", "ring", "reservoir")
AVERAGES = ("micro", "macro")
STORAGE = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64}


@dataclass
class Probe:
    """The test score of a probe (accuracy of classes, R2 of a regression) and its predictions."""

    score: float
    predictions: Tensor


@dataclass
class Rows:
    """The rows of a split: features (N, ...), whole numbers (N,), and ids (N,) where they count."""

    features: Tensor
    target: Tensor
    ids: Tensor

    def chosen(self, mask: Tensor) -> Rows:
        """The rows where `mask` (N,) is True; without a copy where that is all of them."""
        if bool(mask.all()):
            return self
        return Rows(self.features[mask], self.target[mask], self.ids[mask])


class SplitMetric(StreamingMetric):
    """A metric that keeps rows of a train and a test split, with labels."""

    seen: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._reservoir_seed: dict[str, int] = {}
        # By feature, so that both splits must have features of one width.
        self.add_counts("seen", (BY_DATA,))

    def add_split(
        self,
        split: str,
        storage: str,
        *,
        axes: int = 1,
        capacity: int | None = None,
        overflow: Any = "error",
        seed: int = 0,
    ) -> None:
        """Declare the rows of a split, with `axes` axes of features."""
        columns = {
            f"{split}_features": ((BY_DATA,) * axes, STORAGE[storage]),
            f"{split}_target": ((), torch.int64),
            f"{split}_id": ((), torch.int64),
        }
        if overflow == "reservoir":
            assert capacity is not None
            self.add_reservoir(columns, capacity, by=f"{split}_priority")
            self._reservoir_seed[split] = seed
            return
        for name, (shape, dtype) in columns.items():
            self.add_rows(name, shape, dtype, capacity, overflow)

    def keep(self, split: str, features: Tensor, target: Tensor, ids: Tensor | None = None) -> None:
        """Add rows of a split."""
        if not len(features):
            self.accumulate()
            return
        columns = {
            "features": features.to(self.state_specs[f"{split}_features"].dtype),
            "target": target,
            "id": torch.zeros_like(target) if ids is None else ids,
        }
        if split in self._reservoir_seed:
            values = tuple(columns.values())
            columns["priority"] = row_priorities(self._reservoir_seed[split], *values)
        seen = self.seen.new_full((features.shape[-1],), len(features))
        self.accumulate(seen=seen, **{f"{split}_{name}": v for name, v in columns.items()})

    def kept(self, split: str) -> Rows:
        """The labelled rows of a split; those of a reservoir in the order of its sample."""
        rows = Rows(*(self._column(split, name) for name in ("features", "target", "id")))
        if split in self._reservoir_seed:
            capacity = self.state_specs[f"{split}_priority"].capacity
            assert capacity is not None
            order = lowest(self._column(split, "priority"), capacity)
            rows = Rows(rows.features[order], rows.target[order], rows.ids[order])
        return rows.chosen(rows.target >= 0)

    def _column(self, split: str, name: str) -> Tensor:
        state = f"{split}_{name}"
        return stacked_rows(self.state_specs[state], getattr(self, state), self.device)


def check_split_options(storage: Any, capacity: Any, overflow: Any = "error") -> None:
    """Refuse options of kept rows that do not fit."""
    check_choice("storage", storage, tuple(STORAGE))
    check_choice("overflow", overflow, OVERFLOWS)
    if capacity is not None:
        check_positive_int("capacity", capacity)
    elif overflow != "error":
        raise refuse("capacity", f"a number of rows for overflow={overflow!r}", "None")


def checked_rows(
    features: Any, target: Any, split: Any, device: torch.device | None, axes: str = "ND"
) -> tuple[Tensor, Tensor]:
    """Features of the given axes and a label (N,) for each of them."""
    check_choice("split", split, SPLITS)
    features = checked_features("features", features, device, axes)
    check_tensor("target", target, device)
    if target.shape != features.shape[:1]:
        raise refuse("target", f"the shape ({len(features)},)", describe(target))
    return features, whole_numbers("target", target)


def finite_rows(rows: Rows) -> Tensor:
    """Whether the features of a row are all finite (N,)."""
    features = rows.features.flatten(1)
    if not features.numel():
        return torch.ones(len(features), dtype=torch.bool, device=features.device)
    # Extremes pass a NaN on, and take a fortieth of the time of looking at every feature.
    return features.amax(1).isfinite() & features.amin(1).isfinite()


def trainable(rows: Rows, num_classes: int | None) -> Rows:
    """The rows that are finite and, if the number of classes is known, of one of them."""
    usable = finite_rows(rows)
    return rows.chosen(usable if num_classes is None else usable & (rows.target < num_classes))


def accuracy(hits: Tensor, target: Tensor, average: str) -> Tensor:
    """The share of hits (N,): of all rows, or as the mean over the classes that `target` has."""
    if average == "micro":
        return ratio(hits.sum(), hits.new_tensor(len(hits), dtype=torch.int64))
    classes, place = torch.unique(target, return_inverse=True)
    counts = torch.zeros(len(classes), dtype=torch.float64, device=target.device)
    right = counts.index_add(0, place, hits.to(torch.float64))
    return (right / counts.index_add(0, place, torch.ones_like(hits, dtype=torch.float64))).mean()


def checked_ridges(ridge: Any) -> tuple[float, ...]:
    """One or several penalties, none of them negative."""
    ridges = tuple(ridge) if isinstance(ridge, (list, tuple)) else (ridge,)
    if not ridges:
        raise refuse("ridge", "at least one penalty", describe(ridge))
    for value in ridges:
        check_number("ridge", value, 0)
    return ridges


def checked_targets(
    features: Any, target: Any, split: Any, device: torch.device | None
) -> tuple[Tensor, Tensor]:
    """Features (N, D) and targets of a regression as (N, K)."""
    check_choice("split", split, SPLITS)
    features = checked_features("features", features, device)
    check_tensor("target", target, device)
    if target.shape[:1] != features.shape[:1] or target.ndim > 2 or 0 in target.shape[1:]:
        raise refuse("target", f"the shape ({len(features)},) or (N, K)", describe(target))
    return features, target.unsqueeze(1) if target.ndim == 1 else target


def held_out(features: Tensor, target: Tensor, share: float) -> Tensor:
    """Which rows (N,) are held out: a random share, that depends on nothing but the row."""
    positive = row_priorities(1, features, target) & ((1 << 62) - 1)
    return positive < int(share * (1 << 62))


def storage_of(features: Any) -> str:
    """The type of rows that keeps `features` as they are."""
    wide = isinstance(features, Tensor) and features.dtype is torch.float64
    return "float64" if wide else "float32"
