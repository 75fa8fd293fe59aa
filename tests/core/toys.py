"""Small metrics, one for every kind of state, to test the core with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core import BY_DATA, GROWS, StreamingMetric
from dynmetrics.core.checks import check_positive_int, check_tensor, describe, refuse
from dynmetrics.core.moments import batch_moments, fold_moments, moment_mean, moment_variance


class Mean(StreamingMetric):
    """Mean of numbers, scaled: one sum and one count."""

    higher_is_better = True
    total: Tensor
    n: Tensor

    def __init__(self, *, scale: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = scale
        self.add_sum("total")
        self.add_counts("n")

    @property
    def axes(self) -> tuple[str, ...]:
        return ()

    def update(self, value: Tensor, mask: Tensor | None = None) -> None:
        check_tensor("value", value)
        value = value.double()
        counts = torch.ones_like(value, dtype=torch.bool) if mask is None else mask
        self.accumulate(total=(value * counts).sum() * self.scale, n=counts.sum())

    def compute(self) -> Tensor:
        return self.total / self.n


class Extremes(StreamingMetric):
    """Largest and smallest value (B, T) at every timestep, and the largest integer."""

    top: Tensor
    bottom: Tensor
    code: Tensor

    def __init__(self, *, sign: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sign = sign
        self.add_max("top", (GROWS,))
        self.add_min("bottom", (GROWS,))
        self.add_max("code", (), torch.int64)

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        return {"top": ("T",), "bottom": ("T",), "code": ()}

    def update(self, value: Tensor) -> None:
        check_tensor("value", value)
        if value.ndim != 2:
            raise refuse("value", "the shape (B, T)", describe(value))
        if not len(value):
            return
        value = self.sign * value.double()
        self.accumulate(top=value.amax(0), bottom=value.amin(0), code=(8 * value.amax()).long())

    def compute(self) -> dict[str, Tensor]:
        return {"top": self.top, "bottom": self.bottom, "code": self.code}


class Spread(StreamingMetric):
    """Mean and variance of values (B, T) at every timestep: a folded state."""

    moments: Tensor

    def __init__(self, *, correction: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.correction = correction
        self.add_folded("moments", (3, GROWS), fold_moments)

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        return {"mean": ("T",), "variance": ("T",)}

    def update(self, value: Tensor, mask: Tensor | None = None) -> None:
        check_tensor("value", value)
        if value.ndim != 2:
            raise refuse("value", "the shape (B, T)", describe(value))
        if len(value):
            self.accumulate(moments=batch_moments(value, 0, mask))

    def compute(self) -> dict[str, Tensor]:
        variance = moment_variance(self.moments, self.correction)
        return {"mean": moment_mean(self.moments), "variance": variance}


class Rows(StreamingMetric):
    """Keeps features (N, D) and labels (N,); sums them weighted in the order of the labels."""

    features: list[Tensor]
    labels: list[Tensor]

    def __init__(self, *, capacity: int | None = None, power: float = 1.0, **kwargs: Any) -> None:
        if capacity is not None:
            check_positive_int("capacity", capacity)
        super().__init__(**kwargs)
        self.power = power
        self.add_rows("features", (BY_DATA,), torch.float32, capacity)
        self.add_rows("labels", (), torch.int64, capacity)

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        return {"total": ("D",), "n": ()}

    def update(self, features: Tensor, labels: Tensor) -> None:
        check_tensor("features", features, self.device)
        if features.ndim != 2 or labels.shape != features.shape[:1]:
            raise refuse("features", "the shape (N, D) beside labels (N,)", describe(features))
        self.accumulate(features=features.float(), labels=labels.long())

    def compute(self) -> dict[str, Tensor]:
        if not self.labels:
            return {"total": torch.zeros(0), "n": torch.tensor(0)}
        features, labels = torch.cat(self.features).double(), torch.cat(self.labels)
        weights = (1.0 + labels.double()) ** self.power
        return {"total": weights @ features, "n": torch.tensor(len(labels))}
