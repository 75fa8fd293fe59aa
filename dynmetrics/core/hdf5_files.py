"""HDF5 files, MATLAB v7.3 among them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dynmetrics.core.checks import refuse
from dynmetrics.core.file_entries import DEFLATE, Contents, Entry, Limit, is_numeric, native
from dynmetrics.core.optional import optional

SIGNATURE = b"\x89HDF\r\n\x1a\n"
OFFSETS = (0, 512, 1024, 2048)
"""Where the signature may stand: behind a block of the user's own, such as MATLAB's."""


@contextmanager
def hdf5(path: Path, limit: Limit) -> Generator[Contents, None, None]:
    """The datasets of a file, groups included; links to other files are not followed."""
    h5py = optional("h5py", "files")
    with h5py.File(path, "r") as file:
        entries = {}

        def note(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and item.shape is not None and name[0] != "#":
                kind = _matlab_class(item)
                numeric = is_numeric(item.dtype) and kind not in ("char", "cell")
                reader = _Reader(file, item, kind, limit)
                entries[name] = Entry(name, item.shape, numeric, reader, bool(kind))

        file.visititems(note)
        yield Contents(entries)


def _matlab_class(dataset: Any) -> str:
    """What MATLAB calls the array; empty in other files."""
    value = dataset.attrs.get("MATLAB_class", b"")
    return value.decode() if isinstance(value, bytes) else str(value)


class _Reader:
    """Reads one dataset when called."""

    def __init__(self, file: Any, dataset: Any, kind: str, limit: Limit) -> None:
        self.file = file
        self.dataset = dataset
        self.kind = kind
        self.limit = limit

    def __call__(self) -> Any:
        import h5py
        import numpy as np

        dataset, name = self.dataset, self.dataset.name.lstrip("/")
        if self.kind == "char":
            return np.array(self._texts(name, dataset), dtype=np.str_)
        if self.kind == "cell":
            return np.array(self._cells(name), dtype=np.str_)
        if h5py.check_string_dtype(dataset.dtype) is not None:
            self._check(name, dataset, 1)
            # As bytes: the encoding that a file declares for text is often not that of its text.
            return np.asarray(dataset[...])
        if not is_numeric(dataset.dtype):
            raise refuse(name, "real numbers", f"{dataset.dtype}")
        self._check(name, dataset, dataset.dtype.itemsize)
        return native(name, dataset[...])

    def _check(self, name: str, dataset: Any, itemsize: int) -> None:
        # Such a dataset would have another file read in its place.
        if dataset.is_virtual or dataset.external:
            raise refuse(name, "numbers in the file itself", "a view of another file")
        self.limit.check(name, dataset.shape, itemsize, DEFLATE)

    def _texts(self, name: str, dataset: Any) -> list[str]:
        """The rows of a character matrix, kept by MATLAB as (columns, rows) of UTF-16."""
        self._check(name, dataset, 2)
        if "MATLAB_empty" in dataset.attrs:
            return [""]
        if dataset.dtype.kind != "u" or dataset.dtype.itemsize != 2 or dataset.ndim != 2:
            raise refuse(name, "a MATLAB text", f"{dataset.dtype} of shape {dataset.shape}")
        rows = dataset[...].astype("<u2").T
        return [row.tobytes().decode("utf-16-le").rstrip(" ") for row in rows]

    def _cells(self, name: str) -> list[str]:
        """The texts of a cell array, which refers to other datasets of the same file."""
        import h5py

        self._check(name, self.dataset, 8)
        texts = []
        if self.dataset.dtype != h5py.ref_dtype:
            raise refuse(name, "a MATLAB cell array", f"{self.dataset.dtype}")
        for reference in self.dataset[...].ravel():
            item = self.file[reference] if reference else None
            if not isinstance(item, h5py.Dataset) or _matlab_class(item) != "char":
                raise refuse(name, "text in every cell", "a cell that holds something else")
            found = self._texts(name, item)
            if len(found) != 1:
                raise refuse(name, "one text in every cell", f"{len(found)} rows of text in one")
            texts += found
        return texts
