"""Conditions by explicit id, never by position."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_tensor, describe, refuse

Id = int | str
_NAMED = 10
_MOST = 1_000_000
_LARGEST = torch.iinfo(torch.int64).max


def on_host(tensor: Tensor) -> bool:
    """Whether reading a tensor waits for nothing."""
    return tensor.device.type == "cpu"


class Conditions:
    """The ids of conditions, in the order of the RDM, and the way from ids to rows.

    Args:
        argument: the name under which errors speak of the ids.
        ids: their number, for the ids 0 to K - 1, or the ids: integers from 0 or strings, not both.
    """

    def __init__(self, argument: str, ids: Any) -> None:
        self.argument = argument
        self.ids = parsed_ids(argument, ids)
        self.row_of: dict[Id, int] = {name: row for row, name in enumerate(self.ids)}
        if len(self.row_of) < len(self.ids):
            twice = sorted({i for i in self.ids if self.ids.count(i) > 1}, key=str)
            raise refuse(argument, "different ids", f"{listed(twice)} more than once")
        self._sorted: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def rows(
        self, argument: str, given: Any, n: int, device: torch.device
    ) -> tuple[Tensor, Tensor | None]:
        """The row of each of `n` given ids, int64 (n,), and whether it is known, bool (n,).

        Ids on the host are checked here, and None says that all are known. A tensor elsewhere is
        not read, for that would wait for the device: an unknown id has row 0 and is marked.
        """
        if isinstance(given, Tensor):
            check_tensor(argument, given)
            number = not (given.is_floating_point() or given.is_complex())
            if given.shape != (n,) or not number or given.dtype is torch.bool:
                raise refuse(argument, f"integer ids of shape ({n},)", describe(given))
            if given.device not in (device, torch.device("cpu")):
                raise refuse(argument, f"ids on the host or on {device}", describe(given))
            if not on_host(given):
                return self.rows_of_tensor(argument, given.to(device, non_blocking=True))
            places, known = self.rows_of_tensor(argument, given)
            if not bool(known.all()):
                raise self._unknown(argument, given.tolist())
            return places.to(device, non_blocking=True), None
        if isinstance(given, int):
            # Elsewhere a number stands for the ids 0 to n - 1; here it would hide a mistake.
            raise refuse(argument, f"{n} ids, one for each row of the batch", describe(given))
        ids = parsed_ids(argument, given)
        if len(ids) != n:
            raise refuse(argument, f"{n} ids, one for each row of the batch", f"{len(ids)} ids")
        try:
            found = [self.row_of[name] for name in ids]
        except KeyError:
            raise self._unknown(argument, ids) from None
        return torch.tensor(found, dtype=torch.int64).to(device, non_blocking=True), None

    def rows_of_tensor(self, argument: str, given: Tensor) -> tuple[Tensor, Tensor]:
        """`rows` of a tensor of ids, without reading it."""
        if given.device not in self._sorted:
            if not all(isinstance(i, int) for i in self.ids):
                raise refuse(argument, "a sequence of strings, as the ids are", describe(given))
            ids, rows = torch.tensor(self.ids, dtype=torch.int64).sort()
            self._sorted[given.device] = ids.to(given.device), rows.to(given.device)
        ids, rows = self._sorted[given.device]
        given = given.to(torch.int64)
        place = torch.searchsorted(ids, given).clamp(max=len(ids) - 1)
        known = ids[place] == given
        return torch.where(known, rows[place], 0), known

    def positions(self, argument: str, chosen: Conditions) -> list[int]:
        """The rows of the `chosen` ids."""
        try:
            return [self.row_of[name] for name in chosen.ids]
        except KeyError:
            raise self._unknown(argument, chosen.ids) from None

    def _unknown(self, argument: str, given: Sequence[Id]) -> ValueError:
        unknown = sorted({i for i in given if i not in self.row_of}, key=str)
        known = f"ids among {listed(self.ids)}"
        return refuse(argument, known, f"the unknown {listed(unknown)}")


def parsed_ids(argument: str, ids: Any) -> tuple[Id, ...]:
    """Ids as a tuple of Python integers from 0, within 64 bits, or of strings."""
    if isinstance(ids, int) and not isinstance(ids, bool):
        if not 1 <= ids <= _MOST:
            raise refuse(argument, f"from 1 to {_MOST} ids", describe(ids))
        return tuple(range(ids))
    given = ids
    if isinstance(ids, Tensor):
        check_tensor(argument, ids)
        ids = ids.tolist() if ids.ndim == 1 else None
    shape = getattr(ids, "shape", None)
    if isinstance(ids, (str, bytes)) or (shape is not None and len(shape) != 1):
        raise refuse(argument, "a sequence of ids", describe(given))
    if not isinstance(ids, Sequence) and shape is None:
        raise refuse(argument, "a number of conditions or a sequence of ids", describe(given))
    if shape is not None:
        ids = ids.tolist()
    if all(isinstance(name, str) for name in ids):
        return tuple(str(name) for name in ids)
    try:
        if any(isinstance(name, (bool, str)) or _is_truth_value(name) for name in ids):
            raise TypeError
        numbers = tuple(operator.index(name) for name in ids)
    except TypeError:
        raise refuse(argument, "integers or strings, not both", describe(given)) from None
    outside = [number for number in numbers if not 0 <= number <= _LARGEST]
    if outside:
        raise refuse(argument, f"integers from 0 to {_LARGEST}, or strings", listed(outside))
    return numbers


def _is_truth_value(name: Any) -> bool:
    """Whether a tensor without axes holds a boolean, which counts as a number elsewhere."""
    return isinstance(name, Tensor) and name.dtype is torch.bool


def listed(ids: Sequence[object]) -> str:
    """The first few ids or values, for a message."""
    names = ", ".join(map(repr, ids[:_NAMED]))
    return f"{names} and {len(ids) - _NAMED} more" if len(ids) > _NAMED else names
