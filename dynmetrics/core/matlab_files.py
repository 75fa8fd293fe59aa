"""MATLAB files before v7.3, read without trust.

SciPy's reader of version 5 believes the types and sizes that a file states, and a damaged byte ends
the process. Here each is checked against the bytes that are there before it is used. Version 4 has
no more than a header of five numbers before each array, which SciPy reads safely.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from dynmetrics.core.checks import refuse
from dynmetrics.core.file_entries import DEFLATE, Contents, Entry, Limit, native

Order = Literal["little", "big"]
_VERSION_5 = {b"\x00\x01IM": "little", b"\x01\x00MI": "big"}
_MATRIX, _COMPRESSED, _LAST_TYPE = 14, 15, 18
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8",
            12: "i8", 13: "u8"}  # fmt: skip
"""What numbers are stored as."""
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4",
            14: "i8", 15: "u8"}  # fmt: skip
"""What numbers are in MATLAB, often stored in less."""
_CELL, _TEXT, _OPAQUE = 1, 4, 17
_ENCODINGS = {1: "utf-8", 2: "utf-8", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_LOGICAL, _COMPLEX = 0x0200, 0x0800
# Flags, dimensions and name take less: a name has 63 characters.
_HEADER = 1024


def is_version_5(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a MATLAB file of version 5."""
    return head[124:128] in _VERSION_5


@contextmanager
def matlab(path: Path, limit: Limit) -> Generator[Contents, None, None]:
    """The variables of a MATLAB file; version 4 has no text at its start, but a number."""
    with path.open("rb") as file:
        head = file.read(128)
        if is_version_5(head):
            order: Order = "little" if head[126:128] == b"IM" else "big"
            yield Contents(_variables(file, path.stat().st_size, order, limit))
            return
    if 0 not in head[:4]:
        raise ValueError("neither the text and the version of a MATLAB file, nor a v4 header")
    yield Contents(_version_4(path, limit))


def _version_4(path: Path, limit: Limit) -> dict[str, Entry]:
    from scipy import io

    def entry(name: str, shape: tuple[int, ...], numeric: bool) -> Entry:
        def read() -> Any:
            array = io.loadmat(path, variable_names=[name])[name]
            return native(name, array if numeric else _stripped(array))

        return Entry(name, shape, numeric, read)

    entries = {}
    for name, shape, kind in io.whosmat(path):
        limit.check(name, tuple(shape), 1 if kind == "char" else 8, 8)
        entries[name] = entry(name, tuple(shape), kind not in ("char", "sparse"))
    return entries


def _stripped(rows: Any) -> Any:
    """Texts without the blanks that make them equally long."""
    import numpy as np

    if not hasattr(rows, "dtype") or rows.dtype.kind != "U":
        raise ValueError("a sparse array")
    return np.char.rstrip(rows.ravel(), " ")


# ---------------------------------------------------------------------------- version 5


@dataclass(frozen=True)
class _Array:
    """What an array of version 5 says of itself; its numbers begin at byte `start`."""

    kind: int
    flags: int
    shape: tuple[int, ...]
    name: str
    start: int

    @property
    def numeric(self) -> bool:
        return self.kind in _CLASSES and not self.flags & _COMPLEX


def _variables(file: BinaryIO, size: int, order: Order, limit: Limit) -> dict[str, Entry]:
    """The named arrays of a file of so many bytes."""
    entries = {}
    at = 128
    while at < size:
        file.seek(at)
        kind, length, start, stop = _tag(file.read(8), order)
        if kind not in (_MATRIX, _COMPRESSED) or at + stop > size:
            raise ValueError(f"an element of type {kind} and {length} bytes at byte {at}")
        entry = _entry(file, at + start, length, kind == _COMPRESSED, order, limit)
        if entry is not None:
            entries[entry.name] = entry
        # Nothing is padded where it is compressed.
        at += start + length if kind == _COMPRESSED else stop
    return entries


def _entry(
    file: BinaryIO, at: int, length: int, compressed: bool, order: Order, limit: Limit
) -> Entry | None:
    file.seek(at)
    if compressed:
        inflated = zlib.decompressobj().decompress(file.read(min(length, _HEADER)), 8 + _HEADER)
        kind, declared, start, _ = _tag(inflated[:8], order)
        if kind != _MATRIX or start != 8:
            raise ValueError(f"a compressed element of type {kind}")
        head = inflated[8 : 8 + declared]
    else:
        declared, head = length, file.read(min(length, _HEADER))
    if not declared:
        return None
    array = _described(head, order)
    if not array.name:
        # What objects and functions keep for themselves.
        return None
    itemsize = int(_CLASSES[array.kind][1]) if array.numeric else 1
    limit.check(array.name, array.shape, itemsize, DEFLATE)
    limit.check(array.name, (declared,), 1, DEFLATE)

    def read() -> Any:
        file.seek(at)
        content = file.read(length)
        return _values(_inflated(content, declared) if compressed else content, order)

    return Entry(array.name, array.shape, array.numeric, read)


def _inflated(content: bytes, declared: int) -> bytes:
    """The content of a compressed matrix, which has to end where it says and to be unharmed."""
    inflater = zlib.decompressobj()
    whole = inflater.decompress(content, 8 + declared)
    rest = inflater.decompress(inflater.unconsumed_tail, 1)
    if len(whole) != 8 + declared or rest or not inflater.eof:
        raise ValueError(f"compressed data that is not {declared} bytes")
    return whole[8:]


def _tag(data: bytes | memoryview, order: Order) -> tuple[int, int, int, int]:
    """Type, length, first byte and end of the element that `data` begins with."""
    if len(data) < 8:
        raise ValueError("a file that ends within an element")
    word = int.from_bytes(data[:4], order)
    if word >> 16:
        # An element of at most four bytes, which follow at once.
        kind, length, start, stop = word & 0xFFFF, word >> 16, 4, 8
    else:
        kind, length, start = word, int.from_bytes(data[4:8], order), 8
        stop = start + length + -length % 8
    if not 1 <= kind <= _LAST_TYPE or (start == 4 and length > 4):
        raise ValueError(f"an element of type {kind} and {length} bytes")
    return kind, length, start, stop if kind != _COMPRESSED else start + length


def _element(data: memoryview, at: int, order: Order) -> tuple[int, memoryview, int]:
    """Type and content of the element at byte `at`, and where the next one begins."""
    kind, length, start, stop = _tag(data[at : at + 8], order)
    if at + start + length > len(data):
        raise ValueError(f"an element of {length} bytes at byte {at} of {len(data)}")
    return kind, data[at + start : at + start + length], at + stop


def _described(data: bytes | memoryview, order: Order) -> _Array:
    """Class, shape and name of the array whose content begins with `data`."""
    view = memoryview(data)
    kind, flags, at = _element(view, 0, order)
    if kind != 6 or len(flags) != 8:
        raise ValueError("an array without flags")
    word = int.from_bytes(flags[:4], order)
    if word & 0xFF == _OPAQUE:
        _, name, at = _element(view, at, order)
        return _Array(_OPAQUE, 0, (), bytes(name).decode(), at)
    kind, dimensions, at = _element(view, at, order)
    if kind != 5 or len(dimensions) % 4 or not 8 <= len(dimensions) <= 4 * 32:
        raise ValueError("an array without dimensions")
    steps = range(0, len(dimensions), 4)
    shape = tuple(int.from_bytes(dimensions[i : i + 4], order, signed=True) for i in steps)
    if min(shape) < 0:
        raise ValueError(f"an array of shape {shape}")
    kind, name, at = _element(view, at, order)
    if kind not in (1, 2, 16):
        raise ValueError("an array without a name")
    return _Array(word & 0xFF, word & 0xFF00, shape, bytes(name).decode(), at)


def _values(data: bytes | memoryview, order: Order) -> Any:
    """The numbers of an array in its shape, or its texts (N,)."""
    import numpy as np

    view = memoryview(data)
    array = _described(view, order)
    if array.kind == _TEXT:
        return np.array(_texts(view, array, order), dtype=np.str_)
    if array.kind == _CELL:
        return np.array(_cells(view, array, order), dtype=np.str_)
    if not array.numeric:
        expected = "real numbers or text"
        raise refuse(array.name or "array", expected, "a MATLAB struct, object or complex array")
    kind, content, _ = _element(view, array.start, order)
    sort = _CLASSES[array.kind]
    if kind not in _NUMBERS or (sort[0] != "f" and _NUMBERS[kind][0] == "f"):
        raise ValueError(f"numbers of class {array.kind} stored as type {kind}")
    stored = np.dtype(_NUMBERS[kind]).newbyteorder("<" if order == "little" else ">")
    if len(content) != math.prod(array.shape) * stored.itemsize:
        raise ValueError(f"{len(content)} bytes for an array of shape {array.shape}")
    values = np.frombuffer(content, stored).reshape(array.shape, order="F")
    return values.astype(np.bool_ if array.flags & _LOGICAL else sort, order="C")


def _texts(view: memoryview, array: _Array, order: Order) -> list[str]:
    """The rows of a character matrix, without the blanks that make them equally long."""
    if not math.prod(array.shape):
        return [""]
    kind, content, _ = _element(view, array.start, order)
    if kind not in _ENCODINGS:
        raise ValueError(f"text stored as type {kind}")
    encoding = _ENCODINGS[kind]
    if not encoding.endswith("8"):
        encoding += "-le" if order == "little" else "-be"
    text = bytes(content).decode(encoding)
    if len(array.shape) != 2 or (len(text) != math.prod(array.shape) and array.shape[0] != 1):
        raise ValueError(f"{len(text)} characters for a text of shape {array.shape}")
    rows = array.shape[0]
    return [text[row::rows].rstrip(" ") for row in range(rows)]


def _cells(view: memoryview, array: _Array, order: Order) -> list[str]:
    """The texts of a cell array, column by column."""
    texts = []
    at = array.start
    if math.prod(array.shape) > len(view) // 8:
        raise ValueError(f"a cell array of shape {array.shape} in {len(view)} bytes")
    for _ in range(math.prod(array.shape)):
        kind, content, at = _element(view, at, order)
        inside = _described(content, order) if kind == _MATRIX and len(content) else None
        found = _texts(content, inside, order) if inside and inside.kind == _TEXT else []
        if len(found) != 1:
            raise refuse(array.name, "text in every cell", "a cell that holds something else")
        texts += found
    return texts
