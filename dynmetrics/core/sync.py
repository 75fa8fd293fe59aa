"""One synchronisation for any number of metrics.

torchmetrics spends two or three collectives on every state. Here all metrics together spend one,
and where states are large one more on each kind of reduction that occurs:

1. *Manifest*: a fingerprint of the configuration, and the shapes of all states. Every rank sees
   those of all, so ranks that disagree raise the same error instead of waiting for each other.
   States that take a few thousand numbers come along, and are joined in rank order.
2. *Payload*, if they take more: sums are padded to the common shape, packed in one float64 buffer
   and all-reduced; counts travel as two halves of 32 bits and stay exact up to 2^63. Maxima and
   minima are packed likewise. Rows and folded states are gathered, any number of them from any
   rank.

Where there are too many rows to gather, a metric lets them stay on their ranks (`rows_that_stay`, a
method from the number of rows of each state on each rank to the names of those that stay), and
`compute` finds in `_shares` what it needs to work with the other ranks.

Nothing local is touched before everything has arrived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import (
    dim_zero_cat,
    dim_zero_max,
    dim_zero_mean,
    dim_zero_min,
    dim_zero_sum,
)

from dynmetrics.core.exchange import Exchange, Operation
from dynmetrics.core.manifest import Entry, exchange_manifests
from dynmetrics.core.payload import gather_tensors, join_gathered, reduce_tensors
from dynmetrics.core.state import BY_DATA, State, StateSpec, stacked_rows

_FOREIGN_REDUCTIONS: dict[Any, str] = {
    dim_zero_sum: "sum",
    dim_zero_mean: "mean",
    dim_zero_max: "max",
    dim_zero_min: "min",
    dim_zero_cat: "rows",
}


@dataclass(frozen=True)
class Shares:
    """The states of a synchronised metric of which every rank still has its own share alone."""

    exchange: Exchange
    names: frozenset[str]


def can_pack(metric: Metric) -> bool:
    """Whether all states of a metric of torchmetrics are sums, means, maxima, minima or rows.

    Others, such as detection metrics that keep lists per image, synchronise themselves.
    """
    return type(metric)._sync_dist is Metric._sync_dist and all(
        function in _FOREIGN_REDUCTIONS for function in metric._reductions.values()
    )


def synchronise(metrics: Mapping[str, Metric], exchange: Exchange) -> list[int]:
    """Replace the states of all `metrics` by those of all ranks together, until `unsync`.

    Returns the updates that each metric has seen on all ranks.
    """
    device = exchange.device(next(iter(metrics.values())).device)
    entries: list[Entry] = []
    problem = ""
    try:
        entries = [entry for name, metric in metrics.items() for entry in _entries(name, metric)]
    except Exception as error:
        # Raising here alone would leave the other ranks waiting: they have to hear of it.
        problem = f"{type(error).__name__}: {error}"
    updates, attached = exchange_manifests(metrics, entries, problem, exchange, device)
    staying = {name: _staying_rows(metric, entries) for name, metric in metrics.items()}
    at_home = set().union(*staying.values())
    if attached is not None:
        join_gathered(entries, at_home, attached)
    else:
        reduce_tensors(entries, exchange, device)
        moving = [entry for entry in entries if entry.label not in at_home]
        gather_tensors(moving, exchange, device)
    _install(metrics, entries, updates)
    for name, metric in metrics.items():
        if staying[name]:
            # What `unsync` puts back is the local state, where every row is on its own rank.
            metric.__dict__["_cache"]["_shares"] = None
            metric.__dict__["_shares"] = Shares(exchange, frozenset(staying[name].values()))
    return updates


def _staying_rows(metric: Metric, entries: list[Entry]) -> dict[str, str]:
    """The rows of `metric` that stay on their ranks, by their labels: see `rows_that_stay`."""
    choose = getattr(metric, "rows_that_stay", None)
    if choose is None:
        return {}
    rows = [e for e in entries if e.metric is metric and e.spec.reduction == "rows"]
    chosen = choose({e.spec.name: [shape[0] for shape in e.shapes] for e in rows})
    return {e.label: e.spec.name for e in rows if e.spec.name in chosen}


def _entries(name: str, metric: Metric) -> list[Entry]:
    """The states of `metric`, ready to travel."""
    specs: dict[str, StateSpec] = getattr(metric, "state_specs", None) or _foreign(metric)
    entries = []
    for state, spec in specs.items():
        value = getattr(metric, state)
        if spec.reduction == "rows":
            chunks = [value] if isinstance(value, Tensor) else value
            chunks = [chunk.unsqueeze(0) if chunk.ndim == 0 else chunk for chunk in chunks]
            value = stacked_rows(spec, chunks, metric.device)
        mean = metric._reductions[state] is dim_zero_mean
        entries.append(Entry(metric, f"{name}.{state}", spec, value, mean=mean))
    return entries


def _foreign(metric: Metric) -> dict[str, StateSpec]:
    """What the states of a metric of torchmetrics look like from outside."""
    return {
        state: _foreign_spec(state, _FOREIGN_REDUCTIONS[reduction], getattr(metric, state))
        for state, reduction in metric._reductions.items()
    }


def _foreign_spec(state: str, reduction: str, value: State) -> StateSpec:
    if reduction == "rows":
        first = value if isinstance(value, Tensor) else (value[0] if value else None)
        trailing = () if first is None else (BY_DATA,) * max(first.ndim - 1, 0)
        return StateSpec(state, "rows", trailing, torch.float32 if first is None else first.dtype)
    assert isinstance(value, Tensor)
    kind: Operation = "max" if reduction == "max" else "min" if reduction == "min" else "sum"
    return StateSpec(state, kind, (BY_DATA,) * value.ndim, value.dtype)


def _install(metrics: Mapping[str, Metric], entries: list[Entry], updates: list[int]) -> None:
    """Give every metric the joint state, and keep the local one for `unsync`."""
    for metric, count in zip(metrics.values(), updates, strict=True):
        local = {name: getattr(metric, name) for name in metric._defaults}
        metric.__dict__.update(_cache=local, _is_synced=True, _computed=None)
        if _is_ours(metric):
            metric.__dict__["_synced_updates"] = count
    for entry in entries:
        if entry.result is None:
            continue
        state = entry.result.to(entry.metric.device)
        # torchmetrics expects rows as a tensor once they are synchronised, ours stay a list.
        as_list = entry.spec.reduction == "rows" and _is_ours(entry.metric)
        entry.metric.__dict__[entry.spec.name] = [state] if as_list else state


def _is_ours(metric: Metric) -> bool:
    return hasattr(metric, "state_specs")
