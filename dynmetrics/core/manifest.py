"""What the ranks tell each other before states travel, so that all of them agree or all raise."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torchmetrics import Metric

from dynmetrics.core.exchange import Exchange
from dynmetrics.core.state import StateSpec, common_shape
from dynmetrics.core.words import word_count, words_of

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
    def same(self) -> bool:
        """Whether the state has one shape on all ranks."""
        return all(shape == self.shapes[0] for shape in self.shapes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape into which the state of every rank fits."""
        if self.same:
            return self.shapes[0]
        where = f"compute on {len(self.shapes)} ranks: {self.label}"
        return common_shape(self.spec, self.shapes, where)


def exchange_manifests(
    metrics: Mapping[str, Metric],
    entries: Sequence[Entry],
    problem: str,
    exchange: Exchange,
    device: torch.device,
) -> tuple[list[int], list[Tensor] | None]:
    """Note the shapes of all ranks in the entries.

    Returns every metric's updates on all ranks, and the states of all ranks, packed, if on every
    rank they were few enough to come along (see `payload`).

    Raises:
        ValueError: the same on every rank, if one has a `problem` or their metrics differ.
    """
    text = problem or "\n".join(_describe(name, metric) for name, metric in metrics.items())
    fingerprint = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
    numbers = [bool(problem), fingerprint, *(metric._update_count for metric in metrics.values())]
    for entry in entries:
        shape = entry.local.shape
        numbers += [_DTYPES.index(entry.local.dtype), len(shape), *shape]
    manifests, attached = _gather(numbers, [entry.local for entry in entries], exchange, device)
    if any(part[0] for part in manifests) or len({part[1] for part in manifests}) > 1:
        texts, _ = _gather(list(text.encode()), [], exchange, device)
        raise ValueError(_disagreement([bytes(part).decode() for part in texts]))
    tails = [part[2 + len(metrics) :] for part in manifests]
    same = all(tail == tails[0] for tail in tails)
    states = [_states(tail) for tail in (tails[:1] if same else tails)]
    states *= len(tails) if same else 1
    for i, entry in enumerate(entries):
        entry.shapes = [state[i][1] for state in states]
        if not same or entry.spec.reduction == "rows":
            _agree(entry, [state[i][0] for state in states])
    updates = [sum(part[2 + i] for part in manifests) for i in range(len(metrics))]
    return updates, attached


def _states(numbers: list[int]) -> list[tuple[torch.dtype, tuple[int, ...]]]:
    """Type and shape of every state, from the numbers of a manifest."""
    states = []
    start = 0
    while start < len(numbers):
        end = start + 2 + numbers[start + 1]
        states.append((_DTYPES[numbers[start]], tuple(numbers[start + 2 : end])))
        start = end
    return states


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


def _gather(
    numbers: list[int], states: Sequence[Tensor], exchange: Exchange, device: torch.device
) -> tuple[list[list[int]], list[Tensor] | None]:
    """The lists of all ranks, and their `states` in one piece, in a single collective.

    Where some rank has no room for its states they are None; where one has none for its list, a
    second collective brings the rest.
    """
    room = exchange.room
    words = sum(word_count(state.dtype, state.shape) for state in states)
    attach = len(numbers) + words <= room
    head = [len(numbers), attach, *numbers[:room]]
    # An array is read at once, a list number by number.
    pieces = [torch.frombuffer(array("q", head), dtype=torch.int64).to(device)]
    if attach:
        pieces += [words_of(state.to(device)) for state in states]
    used = len(head) + attach * words
    pieces.append(torch.zeros(2 + room - used, dtype=torch.int64, device=device))
    parts = exchange.gather(torch.cat(pieces))
    heads = [part.cpu() for part in parts]
    counts, attached = zip(*(head[:2].tolist() for head in heads), strict=True)
    if max(counts) > room:
        rest = torch.tensor(numbers + [0] * (max(counts) - len(numbers)), device=device)
        wholes = [part.tolist() for part in exchange.gather(rest)]
        return [whole[:count] for whole, count in zip(wholes, counts, strict=True)], None
    lists = [head[2 : 2 + n].tolist() for head, n in zip(heads, counts, strict=True)]
    if not all(attached):
        return lists, None
    return lists, [part[2 + n :] for part, n in zip(parts, counts, strict=True)]


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
