"""Single arrays from files, safely: nothing in a file is ever executed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dynmetrics.core.checks import refuse
from dynmetrics.core.file_entries import Entry
from dynmetrics.core.file_formats import opened

SUFFIXES = (".npy", ".npz", ".pt", ".mat", ".h5", ".hdf5")


def load_array(location: str) -> Any:
    """The NumPy array at `FILE` or `FILE:KEY`: npy, npz, pt, mat or HDF5.

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
    with opened(path, sys.maxsize) as contents:
        entry = _chosen(dict(contents.entries), key, path)
        array = entry.read()
        # MATLAB writes its axes in the reverse order.
        return array.T if entry.reversed_axes else array


def _split(location: str) -> tuple[Path, str | None]:
    """The path and the key behind the last colon, unless that colon belongs to the path."""
    path, colon, key = location.rpartition(":")
    if colon and Path(path).suffix.lower() in SUFFIXES:
        return Path(path), key
    return Path(location), None


def _chosen(entries: dict[str, Entry], key: str | None, path: Path) -> Entry:
    if not entries:
        raise refuse("file", "arrays of numbers", f"none in {path}")
    if key is None and len(entries) == 1:
        return next(iter(entries.values()))
    if key is None or key not in entries:
        raise refuse("file", f"a key among {sorted(entries)}, as FILE:KEY", f"{path}:{key or ''}")
    return entries[key]
