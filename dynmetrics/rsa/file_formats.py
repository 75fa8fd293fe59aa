"""Arrays in files of several formats, described before they are read."""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dynmetrics.core.checks import describe, refuse

_HDF5 = b"\x89HDF\r\n\x1a\n"
_HDF5_OFFSETS = (0, 512, 1024, 2048)
_MATLAB_NUMBERS = {"double", "single", "logical", "int8", "uint8", "int16", "uint16",
                   "int32", "uint32", "int64", "uint64"}  # fmt: skip
# No byte of a deflated file becomes more than this many.
_DEFLATE = 1032
_OURS = re.compile(r"^[\w.\[\]']+: expected ")


@dataclass(frozen=True)
class Entry:
    """An array of a file: `read` gives it as a native NumPy array."""

    name: str
    shape: tuple[int, ...]
    numeric: bool
    read: Callable[[], Any]
    reversed_axes: bool = False


@dataclass(frozen=True)
class Contents:
    """The arrays of a file by name; the only one of an npy file has the name ""."""

    entries: Mapping[str, Entry]


@contextmanager
def opened(path: Path, max_bytes: int) -> Generator[Contents, None, None]:
    """The contents of a file, readable inside the block.

    Raises:
        ValueError: for every file that is damaged or hostile, whatever its reader raises.
    """
    with path.open("rb") as file:
        head = file.read(max(_HDF5_OFFSETS) + len(_HDF5))
    reader = _reader(path, head)
    limit = _Limit(path, max_bytes)
    try:
        with reader(path, limit) as contents:
            yield contents
    except ModuleNotFoundError:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and _OURS.match(str(error)):
            raise
        expected = f"an undamaged file of arrays ({reader.__name__.lstrip('_')})"
        text = " ".join(str(error).split())[:200]
        raise refuse("path", expected, f"{path.name}: {type(error).__name__}: {text}") from error


@dataclass(frozen=True)
class _Limit:
    """How much an array of a file may declare."""

    path: Path
    max_bytes: int

    def check(self, name: str, shape: tuple[int, ...], itemsize: int, ratio: int = 1) -> None:
        size = math.prod(shape) * itemsize
        held = self.path.stat().st_size * ratio
        if min(shape, default=1) < 0 or size > min(self.max_bytes, held):
            expected = f"at most {min(self.max_bytes, held)} bytes, which the file may hold"
            raise refuse(name or "array", expected, f"the shape {shape}, {size} bytes")


def _reader(path: Path, head: bytes) -> Callable[..., Any]:
    """What reads this file, by its content."""
    if head.startswith(b"\x93NUMPY"):
        return _npy
    if head.startswith(b"PK"):
        try:
            names = zipfile.ZipFile(path).namelist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise refuse("path", "an undamaged archive", f"{path.name}: {error}") from error
        return _npz if any(name.endswith(".npy") for name in names) else _pt
    if any(head[at : at + len(_HDF5)] == _HDF5 for at in _HDF5_OFFSETS):
        return _hdf5
    if path.suffix in (".pt", ".pth"):
        return _pt
    if head.startswith(b"MATLAB 5.0") or path.suffix == ".mat":
        return _matlab
    if head.startswith(b"\x80"):
        raise refuse("path", "a file that executes nothing", f"{path.name}, a pickle")
    raise refuse("path", "a MATLAB, npy, npz, pt or HDF5 file", path.name)


def _numeric(dtype: Any) -> bool:
    return dtype.kind in "fiub" and dtype.names is None


def _native(name: str, array: Any) -> Any:
    """An array that torch takes: real numbers or text, in the machine's byte order."""
    import numpy as np

    if array.dtype.kind in "US" or (array.dtype.kind == "O" and array.ndim == 1):
        return array
    if not _numeric(array.dtype):
        raise refuse(name or "array", "real numbers", f"{array.dtype} of shape {array.shape}")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.float64)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")


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
def _npy(path: Path, limit: _Limit) -> Generator[Contents, None, None]:
    import numpy as np

    with path.open("rb") as file:
        shape, dtype = _npy_header(file)
        limit.check("", shape, dtype.itemsize)
    if dtype.names is None:
        only = Entry("", shape, _numeric(dtype), lambda: _native("", np.load(path)))
        yield Contents({"": only})
        return
    whole = np.load(path, allow_pickle=False)
    entries = {}
    for name in dtype.names:
        field = whole[name]
        entries[name] = Entry(name, field.shape, _numeric(field.dtype), _copier(name, field))
    yield Contents(entries)


def _copier(name: str, array: Any) -> Callable[[], Any]:
    return lambda: _native(name, array)


@contextmanager
def _npz(path: Path, limit: _Limit) -> Generator[Contents, None, None]:
    from numpy.lib import format as npy

    def reader(member: str, name: str) -> Callable[[], Any]:
        def read() -> Any:
            with archive.open(member) as file:
                return _native(name, npy.read_array(file, allow_pickle=False))

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
                except ValueError:
                    # An entry that nobody asks for may be anything; reading it raises.
                    entries[name] = Entry(name, (), False, reader(info.filename, name))
                    continue
            limit.check(name, shape, dtype.itemsize, _DEFLATE)
            if math.prod(shape) * dtype.itemsize > info.file_size:
                raise refuse(name, f"an array within {info.file_size} bytes", f"the shape {shape}")
            entries[name] = Entry(name, shape, _numeric(dtype), reader(info.filename, name))
        yield Contents(entries)


@contextmanager
def _pt(path: Path, limit: _Limit) -> Generator[Contents, None, None]:
    import numpy as np

    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
        limit.check("", (size,), 1, _DEFLATE)
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
        elif isinstance(value, (list, tuple)) and all(isinstance(v, (str, int)) for v in value):
            array = np.array(value)
        else:
            continue
        entries[str(name)] = Entry(
            str(name), array.shape, _numeric(array.dtype), _copier(str(name), array)
        )
    yield Contents(entries)


@contextmanager
def _matlab(path: Path, limit: _Limit) -> Generator[Contents, None, None]:
    from scipy import io

    def reader(name: str, numeric: bool) -> Callable[[], Any]:
        def read() -> Any:
            if not numeric:
                raise refuse(name, "an array of numbers", "a MATLAB cell, struct, text or object")
            return _native(name, io.loadmat(path, variable_names=[name])[name])

        return read

    entries = {}
    for name, shape, kind in io.whosmat(path):
        numeric = kind in _MATLAB_NUMBERS
        if numeric:
            limit.check(name, tuple(shape), 8, _DEFLATE)
        entries[name] = Entry(name, tuple(shape), numeric, reader(name, numeric))
    yield Contents(entries)


@contextmanager
def _hdf5(path: Path, limit: _Limit) -> Generator[Contents, None, None]:
    import h5py

    def reader(dataset: Any) -> Callable[[], Any]:
        def read() -> Any:
            name = dataset.name.lstrip("/")
            # Such a dataset would have another file read in its place.
            if dataset.is_virtual or dataset.external:
                raise refuse(name, "numbers in the file itself", "a view of another file")
            if h5py.check_string_dtype(dataset.dtype) is not None:
                limit.check(name, dataset.shape, 1, _DEFLATE)
                return _native(name, dataset.asstr()[...])
            if not _numeric(dataset.dtype):
                raise refuse(name, "real numbers", f"{dataset.dtype}")
            limit.check(name, dataset.shape, dataset.dtype.itemsize, _DEFLATE)
            return _native(name, dataset[...])

        return read

    with h5py.File(path, "r") as file:
        entries = {}

        # Links to other files are not followed.
        def note(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and item.shape is not None and name[0] != "#":
                turned = "MATLAB_class" in item.attrs
                numeric = _numeric(item.dtype)
                entries[name] = Entry(name, item.shape, numeric, reader(item), turned)

        file.visititems(note)
        yield Contents(entries)
