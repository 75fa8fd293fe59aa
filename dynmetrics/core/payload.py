"""How states travel: one collective for every kind of reduction, however many states there are."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from dynmetrics.core.exchange import Exchange, Operation
from dynmetrics.core.manifest import Entry
from dynmetrics.core.state import padded

_HALF = 1 << 32


def reduce_tensors(entries: Sequence[Entry], exchange: Exchange, device: torch.device) -> None:
    """Sums, maxima and minima: padded to the common shape, packed and reduced together."""
    groups: dict[tuple[Operation, torch.dtype], list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.spec.reduction in ("sum", "max", "min"):
            exact = entry.spec.reduction != "sum" and not entry.spec.dtype.is_floating_point
            groups[entry.spec.reduction, torch.int64 if exact else torch.float64].append(entry)
    for (operation, dtype), members in groups.items():
        shapes = [entry.shape for entry in members]
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
    """Integers as two halves of 32 bits, whose sums float64 holds exactly."""
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


def gather_tensors(entries: Sequence[Entry], exchange: Exchange, device: torch.device) -> None:
    """Rows and folded states: gathered as bytes in one collective, joined in rank order."""
    gathered = ("fold", "rows")
    entries = [e for e in entries if e.spec.reduction in gathered and any(map(_numel, e.shapes))]
    if not entries:
        return
    sizes = [
        [_numel(entry.shapes[rank]) * entry.spec.dtype.itemsize for entry in entries]
        for rank in range(len(entries[0].shapes))
    ]
    mine = [e.local.to(device).contiguous().flatten().view(torch.uint8) for e in entries]
    packed = torch.cat(mine)
    packed = torch.nn.functional.pad(packed, (0, max(map(sum, sizes)) - packed.numel()))
    chunks: list[list[Tensor]] = [[] for _ in entries]
    for rank, buffer in enumerate(exchange.gather(packed)):
        for i, part in enumerate(torch.split(buffer[: sum(sizes[rank])], sizes[rank])):
            if part.numel():
                # A slice may start anywhere, and a wider type must not start at an odd address.
                value = part.clone().view(entries[i].spec.dtype)
                chunks[i].append(value.reshape(entries[i].shapes[rank]))
    for entry, parts in zip(entries, chunks, strict=True):
        entry.result = _joined(entry, parts)


def _joined(entry: Entry, parts: list[Tensor]) -> Tensor:
    if entry.spec.fold is None:
        return torch.cat(parts)
    shape = entry.shape
    return functools.reduce(entry.spec.fold, [padded(entry.spec, p, shape) for p in parts])


def _numel(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()
