"""Arrays from files, safely: nothing in a file is ever executed."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile

from dynmetrics.core.checks import refuse
from dynmetrics.core.optional import optional

_SPOILT = (
    KeyError, OSError, EOFError, RuntimeError, NotImplementedError, TypeError, ValueError,
    BadZipFile, UnpicklingError,
)  # fmt: skip
SUFFIXES = (".npy", ".npz", ".pt", ".mat", ".h5", ".hdf5")


def load_array(location: str) -> Any:
    """The array at `FILE` or `FILE:KEY`: npy, npz, pt, mat or HDF5; a NumPy array or a tensor.

    Pickled objects are refused. A file with several arrays needs the key.

    Raises:
        ValueError: for another kind of file, an unknown key, or a file that is spoilt.
    """
    path, key = _split(location)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise refuse("file", f"one of {', '.join(SUFFIXES)}", repr(str(path)))
    if not path.is_file():
        raise refuse("file", "a file that exists", repr(str(path)))
    try:
        if suffix == ".npy":
            return _numpy().load(path, allow_pickle=False, mmap_mode="c")
        entries = _entries(path, suffix)
    except _SPOILT as error:
        reason = str(error).partition(". ")[0]
        raise refuse(
            "file", "readable arrays without pickled objects", f"{path}: {reason}"
        ) from error
    return _chosen(entries, key, path)


def _numpy() -> Any:
    import numpy

    return numpy


def _split(location: str) -> tuple[Path, str | None]:
    """The path and the key behind the last colon, unless that colon belongs to the path."""
    path, colon, key = location.rpartition(":")
    if colon and Path(path).suffix.lower() in SUFFIXES:
        return Path(path), key
    return Path(location), None


def _entries(path: Path, suffix: str) -> dict[str, Any]:
    if suffix == ".npz":
        # NumPy leaves a spoilt file open if it opens it itself.
        with path.open("rb") as file, _numpy().load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    if suffix == ".pt":
        import torch

        loaded = torch.load(path, map_location="cpu", weights_only=True)
        return dict(loaded) if isinstance(loaded, dict) else {"": loaded}
    if suffix == ".mat" and not _is_hdf5(path):
        from scipy.io import loadmat

        return {k: v for k, v in loadmat(path).items() if not k.startswith("__")}
    with optional("h5py", "files").File(path, "r") as file:
        # MATLAB writes its axes in the reverse order.
        flip = suffix == ".mat"
        return {k: v[()].T if flip else v[()] for k, v in file.items() if hasattr(v, "shape")}


def _is_hdf5(path: Path) -> bool:
    return bool(optional("h5py", "files").is_hdf5(path))


def _chosen(entries: dict[str, Any], key: str | None, path: Path) -> Any:
    if key is None and len(entries) == 1:
        return next(iter(entries.values()))
    if key not in entries:
        raise refuse("file", f"a key among {sorted(entries)}, as FILE:KEY", f"{path}:{key or ''}")
    return entries[key]
