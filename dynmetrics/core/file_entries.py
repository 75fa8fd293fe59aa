"""What a file of arrays is made of, whatever its format."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynmetrics.core.checks import refuse

DEFLATE = 1032
"""No byte of a deflated file becomes more than so many."""


@dataclass(frozen=True)
class Entry:
    """An array of a file: `read` gives it as a NumPy array in the machine's byte order."""

    name: str
    shape: tuple[int, ...]
    numeric: bool
    read: Callable[[], Any]
    reversed_axes: bool = False


@dataclass(frozen=True)
class Contents:
    """The arrays of a file by name; the only one of an npy file has the name ""."""

    entries: Mapping[str, Entry]


@dataclass(frozen=True)
class Limit:
    """How much an array of a file may declare."""

    path: Path
    max_bytes: int

    def check(self, name: str, shape: tuple[int, ...], itemsize: int, ratio: int = 1) -> None:
        """Refuse an array that is larger than asked for, or than the file can hold."""
        size = math.prod(shape) * itemsize
        held = self.path.stat().st_size * ratio
        if min(shape, default=1) < 0 or size > min(self.max_bytes, held):
            expected = f"at most {min(self.max_bytes, held)} bytes, which the file may hold"
            raise refuse(name or "array", expected, f"the shape {shape}, {size} bytes")


def is_numeric(dtype: Any) -> bool:
    """Whether a NumPy dtype is of real numbers, and not of records."""
    return dtype.kind in "fiub" and dtype.names is None


def native(name: str, array: Any) -> Any:
    """Real numbers or text, in the machine's byte order."""
    import numpy as np

    if array.dtype.kind in "US" or (array.dtype.kind == "O" and array.ndim == 1):
        return array
    if not is_numeric(array.dtype):
        raise refuse(name or "array", "real numbers", f"{array.dtype} of shape {array.shape}")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
