"""How states travel: with the manifest, or by one collective for every kind of reduction."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from dynmetrics.core.exchange import Exchange, Operation
from dynmetrics.core.manifest import Entry
from dynmetrics.core.state import padded
from dynmetrics.core.words import tensor_of, word_count, words_of

_HALF = 1 << 32

_WHOLE_WORDS = (torch.int64, torch.float64)


def join_gathered(entries: Sequence[Entry], staying: Collection[str], parts: list[Tensor]) -> None:
    """States of all ranks as words: joined here, in rank order, but for those of `staying`."""
    totals = _totals(entries, parts)
    apart = [
        (i, entry)
        for i, entry in enumerate(entries)
        if entry.label not in staying and not _take_total(entry, totals, i)
    ]
    if not apart:
        return
    pieces = []
    for rank, part in enumerate(parts):
        sizes = [word_count(entry.spec.dtype, entry.shapes[rank]) for entry in entries]
        pieces.append(torch.split(part[: sum(sizes)], sizes))
    for i, entry in apart:
        entry.result = _joined(entry, [piece[i] for piece in pieces])


def _totals(
    entries: Sequence[Entry], parts: Sequence[Tensor]
) -> dict[torch.dtype, tuple[Tensor, ...]]:
    """All words summed over the ranks at once, read as either type, and split again into states.

    A sum finds its value in the reading of its own type. Empty if there are no sums, or if states
    do not lie in the same place on every rank.
    """
    if any(not entry.same for entry in entries):
        return {}
    used = {entry.spec.dtype for entry in entries if entry.spec.reduction == "sum"}
    sizes = [word_count(entry.spec.dtype, entry.shapes[0]) for entry in entries]
    words = [part[: sum(sizes)] for part in parts]
    return {
        dtype: torch.split(functools.reduce(torch.add, [w.view(dtype) for w in words]), sizes)
        for dtype in _WHOLE_WORDS
        if dtype in used
    }


def _take_total(entry: Entry, totals: dict[torch.dtype, tuple[Tensor, ...]], position: int) -> bool:
    """Give a sum its total, if it has one among `totals`."""
    total = totals.get(entry.spec.dtype) if entry.spec.reduction == "sum" else None
    if total is None or entry.mean:
        return False
    entry.result = total[position].view(entry.shapes[0])
    return True


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
    ranks = range(len(entries[0].shapes))
    sizes = [[word_count(e.spec.dtype, e.shapes[rank]) for e in entries] for rank in ranks]
    packed = torch.cat([words_of(entry.local.to(device)) for entry in entries])
    packed = torch.nn.functional.pad(packed, (0, max(map(sum, sizes)) - packed.numel()))
    join_gathered(entries, (), exchange.gather(packed))


def _joined(entry: Entry, words: Sequence[Tensor]) -> Tensor | None:
    """The states of all ranks as one, by the reduction that they were declared with."""
    spec = entry.spec
    parts = [
        tensor_of(part, spec.dtype, shape) for part, shape in zip(words, entry.shapes, strict=True)
    ]
    if spec.reduction == "rows":
        filled = [part for part in parts if part.numel()]
        return torch.cat(filled) if filled else None
    shape = entry.shape
    parts = [padded(spec, part, shape) for part in parts]
    if spec.fold is not None:
        return functools.reduce(spec.fold, parts)
    stacked = torch.stack(parts)
    stacked = stacked.to(torch.float64 if spec.dtype.is_floating_point else torch.int64)
    if spec.reduction == "sum":
        total = stacked.sum(0).to(spec.dtype)
        return total / len(parts) if entry.mean else total
    extreme = stacked.amax(0) if spec.reduction == "max" else stacked.amin(0)
    return extreme.to(spec.dtype)


def _numel(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()
