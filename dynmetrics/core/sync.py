"""One synchronisation for any number of metrics.

torchmetrics spends two or three collectives on every state. Here all metrics together spend one on
a header and one on each kind of reduction that occurs:

1. *Header*: a fingerprint of the configuration, and the shapes of all states. Every rank sees every
   header, so ranks that disagree raise the same error instead of waiting for each other.
2. *Payload*: sums are padded to the common shape, packed in one float64 buffer and all-reduced.
   Integers travel as two halves of 32 bits, whose sums float64 holds exactly, so that counts stay
   exact up to 2^63. Maxima and minima are packed likewise; rows are gathered, any number of them
   from any rank.

Nothing local is touched before everything has arrived.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
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
from dynmetrics.core.state import BY_DATA, State, StateSpec, common_shape, padded, stacked_rows

_HEADER_ROOM = 384
_MAX_AXES = 8
_HALF = 1 << 32
_REDUCTIONS: dict[Any, str] = {
    dim_zero_sum: "sum",
    dim_zero_mean: "mean",
    dim_zero_max: "max",
    dim_zero_min: "min",
    dim_zero_cat: "rows",
}
_DTYPES = [
    torch.int64, torch.float64, torch.float32, torch.int32, torch.bool, torch.uint8,
    torch.float16, torch.bfloat16, torch.int16, torch.int8,
]  # fmt: skip


@dataclass
class Entry:
    """One state of one metric on its way to the other ranks."""

    metric: Metric
    label: str
    spec: StateSpec
    local: Tensor
    mean: bool = False
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    result: Tensor | None = None


def can_pack(metric: Metric) -> bool:
    """Whether all states of `metric` are sums, means, maxima, minima or rows.

    Others, such as detection metrics that keep lists per image, synchronise themselves.
    """
    return type(metric)._sync_dist is Metric._sync_dist and all(
        function in _REDUCTIONS for function in metric._reductions.values()
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
    updates = _exchange_headers(metrics, entries, problem, exchange, device)
    _reduce_tensors([e for e in entries if e.spec.reduction != "rows"], exchange, device)
    _gather_rows([e for e in entries if e.spec.reduction == "rows"], exchange, device)
    _install(metrics, entries, updates)
    return updates


def _entries(name: str, metric: Metric) -> list[Entry]:
    """The states of `metric`, ready to travel."""
    specs: Mapping[str, StateSpec] | None = getattr(metric, "state_specs", None)
    entries = []
    for state, reduction in metric._reductions.items():
        if reduction is None:
            continue
        value = getattr(metric, state)
        label = f"{name}.{state}" if name else state
        if specs is not None:
            spec = specs[state]
        else:
            spec = _foreign_spec(state, _REDUCTIONS[reduction], value)
        if spec.reduction == "rows":
            chunks = [value] if isinstance(value, Tensor) else value
            chunks = [chunk.unsqueeze(0) if chunk.ndim == 0 else chunk for chunk in chunks]
            value = stacked_rows(spec, chunks, metric.device)
        entries.append(Entry(metric, label, spec, value, mean=reduction is dim_zero_mean))
    return entries


def _foreign_spec(state: str, reduction: str, value: State) -> StateSpec:
    """What a state of a metric that is not ours looks like from outside."""
    if reduction == "rows":
        first = value if isinstance(value, Tensor) else (value[0] if value else None)
        trailing = () if first is None else (BY_DATA,) * max(first.ndim - 1, 0)
        return StateSpec(state, "rows", trailing, torch.float32 if first is None else first.dtype)
    assert isinstance(value, Tensor)
    kind: Operation = "max" if reduction == "max" else "min" if reduction == "min" else "sum"
    return StateSpec(state, kind, (BY_DATA,) * value.ndim, value.dtype)


def _exchange_headers(
    metrics: Mapping[str, Metric],
    entries: list[Entry],
    problem: str,
    exchange: Exchange,
    device: torch.device,
) -> list[int]:
    """Agree with all ranks on what will travel; returns every metric's updates on all ranks."""
    text = problem or "\n".join(_describe(name, metric) for name, metric in metrics.items())
    fingerprint = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
    numbers = [bool(problem), fingerprint, *(metric._update_count for metric in metrics.values())]
    for entry in entries:
        shape = list(entry.local.shape)
        axes = [*shape, *[0] * (_MAX_AXES - len(shape))]
        numbers += [_DTYPES.index(entry.local.dtype), len(shape), *axes]
    headers = _gather_numbers(numbers, _HEADER_ROOM, exchange, device)
    if any(header[0] for header in headers) or len({header[1] for header in headers}) > 1:
        texts = _gather_numbers(list(text.encode()), 0, exchange, device)
        raise ValueError(_disagreement([bytes(part).decode() for part in texts]))
    size = 2 + _MAX_AXES
    for i, entry in enumerate(entries):
        start = 2 + len(metrics) + i * size
        parts = [header[start : start + size] for header in headers]
        entry.shapes = [tuple(part[2 : 2 + part[1]]) for part in parts]
        _agree(entry, [_DTYPES[part[0]] for part in parts])
    return [sum(header[2 + i] for header in headers) for i in range(len(metrics))]


def _describe(name: str, metric: Metric) -> str:
    configuration = getattr(metric, "configuration", type(metric).__name__)
    states = ", ".join(f"{k} {_REDUCTIONS[f]}" for k, f in metric._reductions.items() if f)
    return f"{name}: {configuration} with {states}"


def _disagreement(texts: list[str]) -> str:
    """The same message on every rank: only the lines in which the ranks differ."""
    shared = set.intersection(*(set(text.split("\n")) for text in texts))
    lines = [
        f"rank {rank} has " + ("; ".join(t for t in text.split("\n") if t not in shared) or "less")
        for rank, text in enumerate(texts)
    ]
    return "compute: expected the same metrics on every rank, got: " + " | ".join(lines)


def _gather_numbers(
    numbers: list[int], room: int, exchange: Exchange, device: torch.device
) -> list[list[int]]:
    """The lists of all ranks: one collective if all have `room`, else a second one for the rest."""
    head = [len(numbers), *numbers[:room], *[0] * (room - len(numbers))]
    parts = [p.tolist() for p in exchange.gather(torch.tensor(head, device=device))]
    longest = max(part[0] for part in parts)
    if longest <= room:
        return [part[1 : 1 + part[0]] for part in parts]
    rest = numbers + [0] * (longest - len(numbers))
    wholes = [p.tolist() for p in exchange.gather(torch.tensor(rest, device=device))]
    return [whole[: part[0]] for whole, part in zip(wholes, parts, strict=True)]


def _agree(entry: Entry, dtypes: list[torch.dtype]) -> None:
    """Check one state over all ranks: each runs the same check, so all raise or none does."""
    if entry.spec.reduction == "rows":
        # A rank without rows may know neither their shape nor their type.
        filled = [i for i, shape in enumerate(entry.shapes) if shape[0]]
        if not filled:
            return
        dtypes = [dtypes[i] for i in filled]
        rows = {entry.shapes[i][1:] for i in filled}
        agreed = len(rows) == 1
        entry.spec = StateSpec(entry.spec.name, "rows", next(iter(rows)), dtypes[0])
    else:
        agreed = True
        common_shape(entry.spec, entry.shapes, f"compute on {len(dtypes)} ranks: {entry.label}")
    if not agreed or len(set(dtypes)) > 1:
        got = ", ".join(f"rank {i} {shape}" for i, shape in enumerate(entry.shapes))
        raise ValueError(
            f"{entry.label}: expected one type and shape on all ranks, got {got}; {dtypes}"
        )


def _reduce_tensors(entries: list[Entry], exchange: Exchange, device: torch.device) -> None:
    """Sums, maxima and minima: one collective for each kind that occurs."""
    groups: dict[tuple[Operation, torch.dtype], list[Entry]] = defaultdict(list)
    for entry in entries:
        assert entry.spec.reduction != "rows"
        exact = entry.spec.reduction != "sum" and not entry.spec.dtype.is_floating_point
        groups[entry.spec.reduction, torch.int64 if exact else torch.float64].append(entry)
    for (operation, dtype), members in groups.items():
        shapes = [common_shape(e.spec, e.shapes, e.label) for e in members]
        packed = [
            _encode(padded(e.spec, e.local, shape).to(device), operation).to(dtype)
            for e, shape in zip(members, shapes, strict=True)
        ]
        total = exchange.reduce(torch.cat(packed), operation)
        parts = torch.split(total, [p.numel() for p in packed])
        for entry, shape, part in zip(members, shapes, parts, strict=True):
            value = _decode(part, entry.spec.dtype, operation).reshape(shape)
            entry.result = value / len(entry.shapes) if entry.mean else value


def _encode(tensor: Tensor, operation: Operation) -> Tensor:
    flat = tensor.flatten()
    if operation != "sum" or flat.is_floating_point():
        return flat
    whole = flat.to(torch.int64)
    return torch.cat([whole >> 32, whole & (_HALF - 1)])


def _decode(part: Tensor, dtype: torch.dtype, operation: Operation) -> Tensor:
    if operation != "sum" or dtype.is_floating_point:
        return part.to(dtype)
    high, low = part.to(torch.int64).chunk(2)
    return (high * _HALF + low).to(dtype)


def _gather_rows(entries: list[Entry], exchange: Exchange, device: torch.device) -> None:
    """All rows of all ranks, in rank order, as bytes in one collective."""
    if not any(shape[0] for entry in entries for shape in entry.shapes):
        return
    entries = [entry for entry in entries if any(shape[0] for shape in entry.shapes)]
    ranks = range(len(entries[0].shapes))

    def n_bytes(entry: Entry, rank: int) -> int:
        shape = entry.shapes[rank]
        return torch.Size(shape).numel() * entry.spec.dtype.itemsize if shape[0] else 0

    sizes = [[n_bytes(entry, rank) for entry in entries] for rank in ranks]
    mine = [e.local.to(device).contiguous().flatten().view(torch.uint8) for e in entries]
    packed = torch.cat(mine)
    packed = torch.nn.functional.pad(packed, (0, max(map(sum, sizes)) - packed.numel()))
    chunks: list[list[Tensor]] = [[] for _ in entries]
    for rank, buffer in enumerate(exchange.gather(packed)):
        for i, part in enumerate(torch.split(buffer[: sum(sizes[rank])], sizes[rank])):
            if part.numel():
                # A slice may start anywhere, and a wider type must not start at an odd address.
                rows = part.clone().view(entries[i].spec.dtype)
                chunks[i].append(rows.reshape(entries[i].shapes[rank]))
    for entry, parts in zip(entries, chunks, strict=True):
        entry.result = torch.cat(parts)


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
        setattr(entry.metric, entry.spec.name, [state] if as_list else state)


def _is_ours(metric: Metric) -> bool:
    return hasattr(metric, "state_specs")
