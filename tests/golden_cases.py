"""Reads the golden cases, and feeds their samples to a metric along different routes.

Whatever the route (batches as given, one sample at a time, random splits, shards that are merged),
a metric must arrive at the same value.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

GOLDEN = Path(__file__).parent / "golden"

Sample = tuple[Tensor, ...]
Batch = tuple[Tensor, ...]

ROUTES = ("given", "one by one", "random 0", "random 1", "random 2", "merged 0", "merged 1")


# ---------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class Case:
    """One golden case: inputs, expected values and the tolerance they hold within."""

    name: str
    inputs: dict[str, Any]
    expected: dict[str, Any]
    rtol: float
    atol: float
    params: dict[str, Any]

    def __str__(self) -> str:
        return self.name

    def check(self, actual: Any, expected: Any, rtol: float | None = None) -> None:
        """Equal within the tolerance of the case, NaN where and only where NaN is expected."""
        actual = torch.as_tensor(actual, dtype=torch.float64)
        expected = torch.as_tensor(expected, dtype=torch.float64)
        torch.testing.assert_close(
            actual, expected, rtol=rtol or self.rtol, atol=self.atol, equal_nan=True
        )


def null_as_nan(value: Any) -> Any:
    """JSON with every null read as NaN, the undefined value."""
    if value is None:
        return math.nan
    if isinstance(value, list):
        return [null_as_nan(entry) for entry in value]
    if isinstance(value, dict):
        return {key: null_as_nan(entry) for key, entry in value.items()}
    return value


def words_as_floats(value: Any) -> Any:
    """JSON with "NaN" and "Infinity" read as floats; null stays None, "takes no such input"."""
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if isinstance(value, list):
        return [words_as_floats(entry) for entry in value]
    if isinstance(value, dict):
        return {key: words_as_floats(entry) for key, entry in value.items()}
    return value


def temporal_case(name: str) -> Case:
    """The case of `golden/temporal/{name}.json`."""
    raw = null_as_nan(json.loads((GOLDEN / "temporal" / f"{name}.json").read_text()))
    return Case(name, raw["inputs"], raw["expected"], raw["rtol"], raw["atol"], params={})


def temporal_cases(family: str) -> list[Case]:
    """Every case of a family, such as "acc"."""
    paths = sorted((GOLDEN / "temporal").glob(f"{family}__*.json"))
    return [temporal_case(path.stem) for path in paths]


def world_cases(metric: str) -> list[Case]:
    """Every case of `golden/world/{metric}.json`."""
    raws = words_as_floats(json.loads((GOLDEN / "world" / f"{metric}.json").read_text()))
    return [
        Case(raw["case"], raw["inputs"], raw["expected"], raw["rtol"], raw["atol"], raw["params"])
        for raw in raws
    ]


# ---------------------------------------------------------------------------- samples and batches


def samples_of(batches: Sequence[Batch]) -> list[Sample]:
    """The single samples of batches, in order."""
    return [sample for batch in batches for sample in zip(*batch, strict=True)]


def collate(samples: Sequence[Sample]) -> Batch:
    """One batch of samples; shorter ones are padded in time with steps that have no label."""
    return tuple(stack_padded(field) for field in zip(*samples, strict=True))


def stack_padded(rows: Sequence[Tensor]) -> Tensor:
    """Rows stacked, padded along their first axis: scores with 0, whole numbers with -1."""
    if rows[0].ndim == 0:
        return torch.stack(list(rows))
    longest = max(len(row) for row in rows)
    padding = 0.0 if rows[0].is_floating_point() else -1
    out = rows[0].new_full((len(rows), longest, *rows[0].shape[1:]), padding)
    for index, row in enumerate(rows):
        out[index, : len(row)] = row
    return out


def regrouped(batches: Sequence[Batch], rng: random.Random) -> list[Batch]:
    """The same samples in random order, cut into batches of random sizes."""
    samples = samples_of(batches)
    rng.shuffle(samples)
    groups = []
    while samples:
        size = rng.randint(1, min(5, len(samples)))
        groups.append(collate(samples[:size]))
        samples = samples[size:]
    return groups


def sharded(batches: Sequence[Batch], rng: random.Random) -> list[list[Batch]]:
    """The samples dealt to three shards at random, and one shard, anywhere, that saw nothing."""
    shards: list[list[Batch]] = [[], [], []]
    for batch in regrouped(batches, rng):
        rng.choice(shards).append(batch)
    shards.insert(rng.randint(0, 3), [])
    return shards


def feed(make: Callable[[], Metric], batches: Sequence[Batch], route: str) -> Metric:
    """A fresh metric that has seen every sample once, along one of ROUTES."""
    way, _, seed = route.partition(" ")
    if way == "given":
        return updated(make(), batches)
    if way == "one":
        return updated(make(), [collate([sample]) for sample in samples_of(batches)])
    rng = random.Random(int(seed))
    if way == "random":
        return updated(make(), regrouped(batches, rng))
    first, *others = [updated(make(), shard) for shard in sharded(batches, rng)]
    for other in others:
        first.merge_state(other)
    return first


def updated(metric: Metric, batches: Sequence[Batch]) -> Metric:
    """The metric, updated with each batch."""
    for batch in batches:
        metric.update(*batch)
    return metric
