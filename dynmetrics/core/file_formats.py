"""Arrays in files of several formats, described before they are read."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import torch

from dynmetrics.core.checks import describe, refuse
from dynmetrics.core.file_entries import DEFLATE, Contents, Entry, Limit, is_numeric, native
from dynmetrics.core.hdf5_files import OFFSETS, SIGNATURE, hdf5
from dynmetrics.core.matlab_files import is_version_5, matlab

_SCALARS = (str, bytes, int, float)
Reader: TypeAlias = Callable[[Path, Limit], AbstractContextManager[Contents]]


@contextmanager
def opened(path: Path, max_bytes: int) -> Generator[Contents, None, None]:
    """The contents of a file, readable inside the block.

    Raises:
        ValueError: for every file that is damaged or hostile, whatever its reader raises.
    """
    with path.open("rb") as file:
        head = file.read(max(OFFSETS) + len(SIGNATURE))
    reader = _reader(path, head)
    limit = Limit(path, max_bytes)
    try:
        with reader(path, limit) as contents:
            yield contents
    except ImportError:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and _is_ours(str(error)):
            raise
        expected = f"an undamaged file of arrays ({reader.__name__.lstrip('_')})"
        text = " ".join(str(error).split())[:200]
        raise refuse("path", expected, f"{path.name}: {type(error).__name__}: {text}") from error


def _is_ours(message: str) -> bool:
    return ": expected " in message and ", got " in message


def _reader(path: Path, head: bytes) -> Reader:
    """What reads this file, by its content."""
    if head.startswith(b"\x93NUMPY"):
        return _npy
    if head.startswith(b"PK"):
        try:
            names = zipfile.ZipFile(path).namelist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise refuse("path", "an undamaged archive", f"{path.name}: {error}") from error
        return _npz if any(name.endswith(".npy") for name in names) else _pt
    if any(head[at : at + len(SIGNATURE)] == SIGNATURE for at in OFFSETS):
        return hdf5
    if path.suffix in (".pt", ".pth"):
        return _pt
    if head.startswith(b"MATLAB 5.0") or is_version_5(head) or path.suffix == ".mat":
        return matlab
    if head.startswith(b"\x80"):
        raise refuse("path", "a file that executes nothing", f"{path.name}, a pickle")
    raise refuse("path", "a MATLAB, npy, npz, pt or HDF5 file", path.name)


def _npy_header(file: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of an npy stream, which is left at its first number."""
    from numpy.lib import format as npy

    version = npy.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise refuse("path", "npy version 1 or 2", f"version {version}")
    shape, _, dtype = readers[version](file)
    if dtype.hasobject:
        raise refuse("path", "an array of numbers", "an array of objects, which is a pickle")
    return shape, dtype


@contextmanager
def _npy(path: Path, limit: Limit) -> Generator[Contents, None, None]:
    import numpy as np

    with path.open("rb") as file:
        shape, dtype = _npy_header(file)
        limit.check("", shape, dtype.itemsize)
        held, declared = path.stat().st_size - file.tell(), math.prod(shape) * dtype.itemsize
        if held != declared:
            raise ValueError(f"{held} bytes of numbers where {declared} are declared")
    if dtype.names is None:
        only = Entry("", shape, is_numeric(dtype), lambda: native("", np.load(path)))
        yield Contents({"": only})
        return
    whole = np.load(path, allow_pickle=False)
    entries = {}
    for name in dtype.names:
        field = whole[name]
        entries[name] = Entry(name, field.shape, is_numeric(field.dtype), _copier(name, field))
    yield Contents(entries)


def _copier(name: str, array: Any) -> Callable[[], Any]:
    return lambda: native(name, array)


def _refuser(name: str, reason: str) -> Callable[[], Any]:
    def read() -> Any:
        raise refuse(name, "numbers or text", " ".join(reason.split()))

    return read


@contextmanager
def _npz(path: Path, limit: Limit) -> Generator[Contents, None, None]:
    from numpy.lib import format as npy

    def reader(member: str, name: str) -> Callable[[], Any]:
        def read() -> Any:
            with archive.open(member) as file:
                return native(name, npy.read_array(file, allow_pickle=False))

        return read

    with zipfile.ZipFile(path) as archive:
        entries = {}
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                continue
            name = info.filename.removesuffix(".npy")
            with archive.open(info) as file:
                try:
                    shape, dtype = _npy_header(file)
                except ValueError as error:
                    # An entry that nobody asks for may be anything.
                    entries[name] = Entry(name, (), False, _refuser(name, str(error)))
                    continue
            limit.check(name, shape, dtype.itemsize, DEFLATE)
            if math.prod(shape) * dtype.itemsize > info.file_size:
                raise refuse(name, f"an array within {info.file_size} bytes", f"the shape {shape}")
            entries[name] = Entry(name, shape, is_numeric(dtype), reader(info.filename, name))
        yield Contents(entries)


@contextmanager
def _pt(path: Path, limit: Limit) -> Generator[Contents, None, None]:
    import numpy as np

    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
            limit.check("", (size,), 1, DEFLATE)
            # The checksums that torch does not look at.
            spoilt = archive.testzip()
            if spoilt is not None:
                raise ValueError(f"{spoilt} does not agree with its checksum")
    loaded = torch.load(path, map_location="cpu", weights_only=True)
    items = loaded if isinstance(loaded, Mapping) else {"": loaded}
    entries = {}
    for name, value in items.items():
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided or value.is_quantized:
                raise refuse(str(name), "a dense tensor", describe(value))
            # An expanded view of one number may declare any shape.
            limit.check(str(name), tuple(value.shape), value.element_size())
            value = value.detach()
            value = value.float() if value.dtype is torch.bfloat16 else value
            array = value.resolve_conj().resolve_neg().numpy()
        elif isinstance(value, (list, tuple)) and all(isinstance(v, _SCALARS) for v in value):
            # As objects, for NumPy would turn numbers among texts into text.
            array = np.array(value, dtype=object)
        else:
            continue
        entries[str(name)] = Entry(
            str(name), array.shape, is_numeric(array.dtype), _copier(str(name), array)
        )
    yield Contents(entries)
