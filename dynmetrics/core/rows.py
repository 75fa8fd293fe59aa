"""Rows that are kept as they come: a list of chunks, which stays short however many come.

Like every state, rows never change in place. So that adding a batch costs the same after a million
others, the number of rows is carried along, and small chunks are joined now and then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from dynmetrics.core.checks import describe, refuse
from dynmetrics.core.state import State, StateSpec, common_shape

_MOST_CHUNKS = 1024


class Rows(list[Tensor]):
    """A list of chunks (n, ...) that knows its number of rows.

    The first `joined` chunks are joins of many, each at least twice as long as the next.
    """

    total = 0
    joined = 0

    @classmethod
    def of(cls, chunks: Iterable[Tensor], joined: int = 0) -> Rows:
        """The chunks, with their rows counted."""
        rows = cls(chunks)
        rows.total = sum(map(len, rows))
        rows.joined = joined
        return rows

    def followed_by(self, chunk: Tensor) -> Rows:
        """These rows and then `chunk`."""
        rows = Rows(self)
        rows.append(chunk)
        rows.total = self.total + len(chunk)
        rows.joined = self.joined
        return rows if len(rows) <= _MOST_CHUNKS else rows._tidied()

    def _tidied(self) -> Rows:
        """The small chunks as one, with every join before it that is not twice as long."""
        start, size = self.joined, sum(map(len, self[self.joined :]))
        while start and len(self[start - 1]) < 2 * size:
            start -= 1
            size += len(self[start])
        return Rows.of([*self[:start], torch.cat(self[start:])], joined=start + 1)

    def latest(self, count: int) -> Rows:
        """The last `count` rows."""
        surplus = self.total - count
        if surplus <= 0:
            return self
        dropped = 0
        while len(self[dropped]) <= surplus:
            surplus -= len(self[dropped])
            dropped += 1
        chunks = self[dropped:]
        chunks[0] = chunks[0][surplus:]
        return Rows.of(chunks, joined=max(self.joined - dropped, 0))


def combine_rows(spec: StateSpec, state: State, other: State) -> State:
    """The rows of `state` and then those of `other`, checked; neither is changed."""
    if not isinstance(state, list):
        raise refuse(spec.name, "a list of tensors", describe(state))
    # What comes from `update` may be the caller's own tensor, which he is free to write to.
    chunks = other if isinstance(other, list) else [other.clone()]
    first = state[0] if state else None
    for chunk in chunks:
        if chunk.dtype is not spec.dtype or chunk.ndim != len(spec.shape) + 1:
            raise refuse(spec.name, f"rows of {spec.dtype} and shape {spec.shape}", describe(chunk))
        common_shape(spec, [tuple(t.shape[1:]) for t in (first, chunk) if t is not None], "update")
        first = chunk if first is None and len(chunk) else first
    rows = state if isinstance(state, Rows) else Rows.of(state)
    for chunk in chunks:
        rows = rows.followed_by(chunk) if len(chunk) else rows
    if spec.capacity is not None and rows.total > spec.capacity:
        if spec.overflow == "error":
            raise refuse(spec.name, f"at most capacity={spec.capacity} rows", f"{rows.total} rows")
        if spec.overflow == "ring":
            rows = rows.latest(spec.capacity)
    return rows


# ------------------------------------------------------------------------------- reservoirs


def row_priorities(seed: int, *columns: Tensor) -> Tensor:
    """A random priority (N,) for every row, from nothing but what the row holds, and `seed`.

    A reservoir keeps the rows of the lowest priorities. So it is the same random sample whatever
    the order of the rows, their batches and their ranks, and reservoirs merge exactly. Equal rows
    have equal priorities: they are kept, or left, together.
    """
    total = torch.zeros(len(columns[0]), dtype=torch.int64, device=columns[0].device)
    for number, column in enumerate(columns):
        bits = _bits(column.reshape(len(column), column[:1].numel() if len(column) else 0))
        places = torch.arange(bits.shape[1], device=bits.device)
        salt = _mixed(places + ((seed * 1_000_003 + number) << 24) % (1 << 62))
        total = _mixed(total + _mixed(bits + salt).sum(1))
    return total


def _bits(values: Tensor) -> Tensor:
    """Numbers as the integers that their bits spell."""
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    if values.is_floating_point():
        # 0.0 and -0.0 are one number with two spellings.
        values = (values + 0.0).view(integers[values.element_size()])
    return values.to(torch.int64)


def _mixed(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    x = (x ^ _shifted(x, 30)) * -0x40A7B892E31B1A47
    x = (x ^ _shifted(x, 27)) * -0x6B2FB644ECCEEE15
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, places: int) -> Tensor:
    """A shift to the right that fills up with zeros."""
    return (x >> places) & ((1 << (64 - places)) - 1)


def lowest(priorities: Tensor, capacity: int) -> Tensor:
    """The places of the `capacity` lowest priorities, in the order of the priorities."""
    return torch.sort(priorities, stable=True).indices[:capacity]


def thinned(specs: Mapping[str, StateSpec], states: dict[str, State], names: Sequence[str]) -> None:
    """Reduce a reservoir's columns in `states` to its capacity, once they hold twice as much.

    The last of `names` is the column of the priorities.
    """
    capacity = specs[names[-1]].capacity
    columns = {name: states[name] for name in names}
    priorities = columns[names[-1]]
    assert capacity is not None
    assert isinstance(priorities, Rows)
    if priorities.total > 2 * capacity:
        order = lowest(torch.cat(priorities), capacity)
        for name, column in columns.items():
            states[name] = Rows.of([torch.cat([*column])[order]], joined=1)
