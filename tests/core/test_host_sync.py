"""The check for host synchronisation finds what it is meant to find, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.contract import MetricContract
from tests.core.test_states import TestSums as SumsUnderContract
from tests.core.toys import Mean
from tests.host_sync import HostSyncError, without_host_sync

X = torch.tensor([1.0, -2.0, 3.0, 0.5])
MASK = X > 0
INDEX = torch.tensor([1, 2, 0, 1])

READING: dict[str, Callable[[], Any]] = {
    "item": lambda: X.sum().item(),
    "tolist": lambda: X.tolist(),
    "cpu": lambda: X.cpu(),
    "to cpu": lambda: X.to("cpu"),
    "to device=cpu": lambda: X.to(device="cpu"),
    "numpy": lambda: X.numpy(),
    "numpy.asarray": lambda: np.asarray(X),
    "bool": lambda: bool(MASK.any()),
    "if": lambda: 1 if MASK.any() else 0,
    "not": lambda: not MASK.any(),
    "int": lambda: int(INDEX[0]),
    "float": lambda: float(X[0]),
    "range": lambda: range(INDEX[0]),
    "slice": lambda: X[: INDEX[0]],
    "size": lambda: X.new_zeros([INDEX[0]]),  # type: ignore[list-item]
    "python max": lambda: max(X[0], X[1]),
    "in": lambda: 1 in INDEX,
    "format": lambda: f"{X[0]}",
    "nonzero": lambda: MASK.nonzero(),
    "where of one argument": lambda: torch.where(MASK),
    "argwhere": lambda: torch.argwhere(MASK),
    "boolean index": lambda: X[MASK],
    "boolean index, to write": lambda: X.clone().index_put_((MASK,), torch.zeros(3)),
    "masked_select": lambda: X.masked_select(MASK),
    "unique": lambda: torch.unique(INDEX),
    "unique rows": lambda: torch.unique(INDEX[:, None], dim=0),
    "unique_consecutive": lambda: torch.unique_consecutive(INDEX),
    "bincount": lambda: INDEX.bincount(),
    "one_hot of unknown classes": lambda: torch.nn.functional.one_hot(INDEX),
    "repeat_interleave of unknown length": lambda: X.repeat_interleave(INDEX),
    "equal": lambda: torch.equal(X, X),
    "allclose": lambda: torch.allclose(X, X),
    "inverse": lambda: torch.linalg.inv(torch.eye(2)),
    "eigenvalues": lambda: torch.linalg.eigvalsh(torch.eye(2)),
}

HARMLESS: dict[str, Callable[[], Any]] = {
    "where": lambda: torch.where(MASK, X, 0.0),
    "product": lambda: (X * MASK).sum(),
    "integer index": lambda: X[INDEX],
    "gather": lambda: X.gather(0, INDEX),
    "index_add": lambda: torch.zeros(3).index_add(0, INDEX, X),
    "shape": lambda: X.sum() if X.shape[0] > 3 and len(X) else X,
    "dtype": lambda: X.double() if X.is_floating_point() else X,
    "repeat_interleave": lambda: X.repeat_interleave(INDEX, output_size=4),
    "sort": lambda: X.sort(),
    "count_nonzero": lambda: MASK.count_nonzero(),
}


@pytest.mark.parametrize("call", READING.values(), ids=READING)
def test_what_reads_the_device_is_found(call: Callable[[], Any]) -> None:
    call()
    with pytest.raises(HostSyncError, match="reads the device"):
        without_host_sync(call)


@pytest.mark.parametrize("call", HARMLESS.values(), ids=HARMLESS)
def test_what_does_not_read_is_let_through(call: Callable[[], Any]) -> None:
    without_host_sync(call)


class ReadingMean(Mean):
    """Skips batches without valid values, which it can only know by looking."""

    def update(self, value: Tensor, mask: Tensor | None = None) -> None:
        if mask is None or mask.any():
            super().update(value, mask)


class IndexingMean(Mean):
    """Selects by a mask, so that the length of the rest depends on the data."""

    def update(self, value: Tensor, mask: Tensor | None = None) -> None:
        super().update(value if mask is None else value[mask])


class LoggingMean(Mean):
    """Keeps a number for a log."""

    def update(self, value: Tensor, mask: Tensor | None = None) -> None:
        super().update(value, mask)
        self.last = value.sum().item()


@pytest.mark.parametrize("kind", [ReadingMean, IndexingMean, LoggingMean])
def test_a_metric_that_reads_fails_the_contract(kind: type[Mean]) -> None:
    class Case(SumsUnderContract):
        def make(self) -> Mean:
            return kind()

        def batches(self, seed: int = 0) -> list[dict[str, Any]]:
            batches = super().batches(seed)
            return [{**b, "mask": torch.ones_like(b["value"], dtype=torch.bool)} for b in batches]

    assert issubclass(Case, MetricContract)
    Case().test_value_after_every_prefix()
    with pytest.raises(HostSyncError):
        Case().test_update_never_waits_for_the_device()


def test_a_metric_that_was_stopped_while_reading_has_not_changed() -> None:
    metric = LoggingMean()
    metric.update(X)
    with pytest.raises(HostSyncError):
        without_host_sync(lambda: metric.update(X))
    assert metric.update_count == 1
    assert float(metric.compute()) == float(X.double().mean())
