"""What the ranks tell each other before states travel, so that all of them agree or all raise."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torchmetrics import Metric

from dynmetrics.core.exchange import Exchange
from dynmetrics.core.state import StateSpec, common_shape

_HEADER_ROOM = 384
_MAX_AXES = 8
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

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape into which the state of every rank fits."""
        if len(set(self.shapes)) == 1:
            return self.shapes[0]
        where = f"compute on {len(self.shapes)} ranks: {self.label}"
        return common_shape(self.spec, self.shapes, where)


def exchange_manifests(
    metrics: Mapping[str, Metric],
    entries: Sequence[Entry],
    problem: str,
    exchange: Exchange,
    device: torch.device,
) -> list[int]:
    """Note the shapes of all ranks in the entries; returns every metric's updates on all ranks.

    Raises:
        ValueError: the same on every rank, if one has a `problem` or their metrics differ.
    """
    text = problem or "\n".join(_describe(name, metric) for name, metric in metrics.items())
    fingerprint = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
    numbers = [bool(problem), fingerprint, *(metric._update_count for metric in metrics.values())]
    for entry in entries:
        shape = list(entry.local.shape)
        axes = [*shape, *[0] * (_MAX_AXES - len(shape))]
        numbers += [_DTYPES.index(entry.local.dtype), len(shape), *axes]
    manifests = _gather_numbers(numbers, _HEADER_ROOM, exchange, device)
    if any(part[0] for part in manifests) or len({part[1] for part in manifests}) > 1:
        texts = _gather_numbers(list(text.encode()), 0, exchange, device)
        raise ValueError(_disagreement([bytes(part).decode() for part in texts]))
    size = 2 + _MAX_AXES
    for i, entry in enumerate(entries):
        start = 2 + len(metrics) + i * size
        parts = [part[start : start + size] for part in manifests]
        entry.shapes = [tuple(part[2 : 2 + part[1]]) for part in parts]
        _agree(entry, [_DTYPES[part[0]] for part in parts])
    return [sum(part[2 + i] for part in manifests) for i in range(len(metrics))]


def _describe(name: str, metric: Metric) -> str:
    configuration = getattr(metric, "configuration", type(metric).__name__)
    return f"{name}: {configuration} with {', '.join(metric._defaults)}"


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
    agreed = True
    if entry.spec.reduction == "rows":
        # A rank without rows may know neither their shape nor their type.
        filled = [i for i, shape in enumerate(entry.shapes) if shape[0]]
        if not filled:
            return
        dtypes = [dtypes[i] for i in filled]
        rows = {entry.shapes[i][1:] for i in filled}
        agreed = len(rows) == 1
        entry.spec = replace(entry.spec, shape=next(iter(rows)), dtype=dtypes[0])
    else:
        assert entry.shape is not None
    if not agreed or len(set(dtypes)) > 1:
        got = ", ".join(f"rank {i} {shape}" for i, shape in enumerate(entry.shapes))
        raise ValueError(
            f"{entry.label}: expected one type and shape on all ranks, got {got}; {dtypes}"
        )
