"""The golden cases of RSA, and patterns that have a given RDM."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.contract import MetricContract
from tests.golden_cases import GOLDEN, Case, null_as_nan


class PatternContract(MetricContract):
    """The contract; ids on the CPU are read by `update`, those on other devices never."""

    def test_update_never_waits_for_the_device(  # type: ignore[override]
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("dynmetrics.rsa.conditions.on_host", lambda tensor: False)
        super().test_update_never_waits_for_the_device()


def rsa_case(name: str) -> Case:
    """The case of the file in `golden/rsa` whose name begins with `name`."""
    path = next((GOLDEN / "rsa").glob(f"{name}*.json"))
    raw = null_as_nan(json.loads(path.read_text()))
    return Case(
        path.stem, raw.get("inputs", {}), raw["expected"], raw["rtol"], raw.get("atol", 0.0), {}
    )


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def patterns_with(rdm_vector: Any, decimals: int = 4) -> Tensor:
    """Whole-number patterns (K, D) whose city-block distances are exactly affine in an RDM.

    Ranks, ties and Pearson correlations are therefore those of the RDM. Each pair has a feature
    that only its two conditions share, worth what makes them closer, and each condition has one of
    its own, which makes all of them equally large.
    """
    vector = np.rint(np.asarray(rdm_vector, dtype=np.float64) * 10**decimals)
    shared = vector.max() - vector
    size = round((1 + np.sqrt(1 + 8 * len(vector))) / 2)
    pairs = list(combinations(range(size), 2))
    patterns = np.zeros((size, len(pairs) + size))
    for feature, (value, (i, j)) in enumerate(zip(shared, pairs, strict=True)):
        patterns[i, feature] = patterns[j, feature] = value
    own = patterns.sum(1).max() - patterns.sum(1)
    patterns[:, len(pairs) :] = np.diag(own)
    return torch.from_numpy(patterns)


def streamed(metric: Any, patterns: Tensor, seed: int = 0, repeats: int = 2) -> Any:
    """The metric, fed patterns (K, ...) of conditions 0 to K - 1, repeated and out of order."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(patterns) * repeats, generator=generator) % len(patterns)
    for rows in torch.split(order, 5):
        metric.update(patterns[rows], rows)
    return metric
