"""Brain RDMs from files, and RDMs to a file that the Algonauts scorer reads.

What a file declares is checked before anything of that size is read, and nothing in a file is ever
executed: pickles and object arrays are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_positive_int, describe, refuse
from dynmetrics.core.file_entries import Contents, Entry
from dynmetrics.core.file_formats import opened
from dynmetrics.rsa.brain_data import BrainRDMs
from dynmetrics.rsa.conditions import listed
from dynmetrics.rsa.labels import ids_in, times_in
from dynmetrics.rsa.vectors import check_symmetry, rdm_vectors, square, upper_triangle

CONDITION_KEYS = ("conditions", "stimuli_name")
TIME_KEYS = ("times", "time")
_VARIABLE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


def load_brain_rdms(
    path: str | PathLike[str],
    key: str | None = None,
    *,
    transpose: bool | None = None,
    max_bytes: int = 1 << 33,
) -> BrainRDMs:
    """Brain RDMs from a MATLAB file (v7.3 and older), npy, npz, pt or HDF5.

    Understood are (K, K), (S, K, K), (S, Tb, K, K), vectors of the strict upper triangle in place
    of the last two axes, and (S, sessions, Tb, K, K), which are averaged over sessions. MATLAB v7.3
    files hold their axes in reverse order and are turned; other files are turned if only that makes
    the last two axes equal. A half of zeros or NaN is filled from the other half; the diagonal is
    set to 0. Ids are read from an entry "conditions" or "stimuli_name": whole numbers of any dtype,
    text, bytes, a MATLAB row, column, character matrix or cell array of text. Times of (S, Tb, K,
    K) are read from "times" or "time".

    Args:
        path: the file. Its content decides what it is, not its name.
        key: the entry to read, such as "IT_RDMs". May be left out if only one can be RDMs.
        transpose: whether to reverse the axes, where the file does not say.
        max_bytes: the largest array to read.

    Returns:
        `BrainRDMs` on the host, named by the key or the file.

    Raises:
        ValueError: for a file that is missing, damaged, not of these formats, a pickle, or declares
            more than it can hold; for an entry that is missing, ambiguous or no RDM; for asymmetric
            or infinite RDMs; for ids or times that are none, or of another number. Nothing in the
            file is executed.
        ModuleNotFoundError: for HDF5 and MATLAB v7.3 without h5py.

    References:
        Formats of the Algonauts 2019 challenge, of Cichy et al. (2014), Net2Brain and rsatoolbox.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from pathlib import Path
        >>> from dynmetrics.rsa import load_brain_rdms
        >>> rdms = np.array([[[0.0, 1.0], [1.0, 0.0]], [[0.0, 2.0], [2.0, 0.0]]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(Path(folder) / "target.npz", IT_RDMs=rdms, conditions=["cat", "dog"])
        ...     brain = load_brain_rdms(Path(folder) / "target.npz", "IT_RDMs")
        >>> brain.rdms.shape, brain.conditions, brain.name
        (torch.Size([2, 2, 2]), ('cat', 'dog'), 'IT_RDMs')
    """
    path = _checked_path(path)
    if not path.is_file():
        raise refuse("path", "a file", describe(str(path)))
    if transpose is not None and not isinstance(transpose, bool):
        raise refuse("transpose", "True, False or None", describe(transpose))
    check_positive_int("max_bytes", max_bytes)
    with opened(path, max_bytes) as contents:
        entry = _chosen(contents, key)
        array = entry.read()
        names = _first(contents, CONDITION_KEYS)
        times = _first(contents, TIME_KEYS)
        labels = None if names is None else ids_in(path.name, names.name, names.read())
        moments = None if times is None else times_in(path.name, times.name, times.read())
    if array.dtype.kind not in "fiub":
        raise refuse(entry.name or "array", "real numbers", f"text of shape {array.shape}")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype("float64")
    rdms = _halves(_arranged(torch.from_numpy(array), entry, transpose), entry.name)
    if labels is not None and len(labels) != rdms.shape[-1]:
        raise refuse("conditions", f"{rdms.shape[-1]} ids for {entry.name}", f"{len(labels)}")
    if moments is not None and rdms.ndim == 4 and len(moments) != rdms.shape[1]:
        expected = f"{rdms.shape[1]} times for {entry.name}"
        raise refuse(times.name if times else "times", expected, f"{len(moments)}")
    return BrainRDMs(
        rdms,
        labels,
        path.stem if entry.name == "" else entry.name,
        moments if rdms.ndim == 4 else None,
    )


def save_submission(path: str | PathLike[str], **rdms: Tensor) -> None:
    """RDMs of a model in a file that the scorer of the Algonauts 2019 challenge reads.

    Args:
        path: ".mat" (version 5) or ".npy" (an array with named fields, without pickles), in a
            folder that exists: none is made. A file of this name is replaced.
        rdms: (K, K) each, by the scorer's names: `EVC_RDMs` and `IT_RDMs`, or `MEG_RDMs_early` and
            `MEG_RDMs_late`. Other names are written as well, if MATLAB would take them.

    Raises:
        ValueError: for a folder that is missing, names that no variable of MATLAB can have, and
            RDMs that are not square, symmetric and finite, or differ in size.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from pathlib import Path
        >>> from dynmetrics.rsa import load_brain_rdms, save_submission
        >>> rdm = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_submission(Path(folder) / "submit_fmri.mat", EVC_RDMs=rdm, IT_RDMs=2 * rdm)
        ...     load_brain_rdms(Path(folder) / "submit_fmri.mat", "IT_RDMs").rdms
        tensor([[0., 2.],
                [2., 0.]], dtype=torch.float64)
    """
    import numpy as np
    from scipy import io

    path = _checked_path(path)
    if path.suffix not in (".mat", ".npy"):
        raise refuse("path", "a name that ends in .mat or .npy", describe(str(path)))
    if not path.parent.is_dir() or path.is_dir():
        raise refuse("path", "a file in a folder that exists", describe(str(path)))
    if not rdms:
        raise refuse("rdms", "at least one RDM by name", "none")
    unfit = [name for name in rdms if not _VARIABLE.fullmatch(name)]
    if unfit:
        raise refuse("rdms", "names such as IT_RDMs, of at most 63 letters", listed(unfit))
    arrays = {name: _submitted(name, rdm).numpy() for name, rdm in rdms.items()}
    sizes = {len(array) for array in arrays.values()}
    if len(sizes) > 1:
        raise refuse("rdms", "RDMs of the same conditions", f"sizes {sorted(sizes)}")
    if path.suffix == ".mat":
        io.savemat(path, arrays)
        return
    size = sizes.pop()
    fields = np.dtype([(name, "<f8", (size, size)) for name in arrays])
    record = np.zeros((), dtype=fields)
    for name, array in arrays.items():
        record[name] = array
    np.save(path, record, allow_pickle=False)


def _checked_path(path: Any) -> Path:
    if not isinstance(path, (str, PathLike)) or isinstance(fspath(path), bytes):
        raise refuse("path", "a path", describe(path))
    return Path(path)


def _submitted(name: str, rdm: Any) -> Tensor:
    rdm = getattr(rdm, "rdms", rdm)
    vectors = rdm_vectors(name, rdm).detach().cpu()
    if rdm.ndim != 2 or rdm.shape[0] != rdm.shape[1] or not bool(vectors.isfinite().all()):
        raise refuse(name, "one finite RDM (K, K)", describe(rdm))
    return square(vectors)


def _first(contents: Contents, names: tuple[str, ...]) -> Entry | None:
    return next((contents.entries[name] for name in names if name in contents.entries), None)


def _chosen(contents: Contents, key: str | None) -> Entry:
    """The entry that holds the RDMs."""
    entries = contents.entries
    if key is not None:
        if key not in entries:
            raise refuse("key", f"one of {listed(list(entries))}", describe(key))
        return entries[key]
    fitting = _named(entries, _are_matrices) or _named(entries, _are_vectors)
    if len(fitting) != 1:
        found = listed(fitting) if fitting else f"none among {listed(list(entries))}"
        raise refuse("key", "the name of an entry unless just one can be RDMs", found)
    return entries[fitting[0]]


def _named(entries: Mapping[str, Entry], fits: Callable[[tuple[int, ...]], bool]) -> list[str]:
    return [name for name, entry in entries.items() if entry.numeric and fits(entry.shape)]


def _are_matrices(shape: tuple[int, ...]) -> bool:
    if not 2 <= len(shape) <= 5 or 0 in shape:
        return False
    return (shape[-1] == shape[-2] and shape[-1] > 1) or (shape[0] == shape[1] and shape[0] > 1)


def _are_vectors(shape: tuple[int, ...]) -> bool:
    return 1 <= len(shape) <= 3 and 0 not in shape and _is_triangular(shape[-1])


def _is_triangular(pairs: int) -> bool:
    root = math.isqrt(1 + 8 * pairs)
    return pairs > 0 and root * root == 1 + 8 * pairs


def _arranged(array: Tensor, entry: Entry, transpose: bool | None) -> Tensor:
    """The array with its conditions last."""
    shape = tuple(array.shape)
    if array.ndim > 5:
        raise refuse(entry.name or "array", "at most 5 axes", f"the shape {shape}")
    plain = array.ndim >= 2 and shape[-1] == shape[-2] and shape[-1] > 1
    turned = array.ndim >= 2 and shape[0] == shape[1] and shape[0] > 1
    transpose = entry.reversed_axes or None if transpose is None else transpose
    if transpose is not None:
        array = array.permute(*range(array.ndim)[::-1]) if transpose else array
        plain, turned = turned if transpose else plain, False
    if plain and turned and array.ndim > 2:
        # Axes of equal length: only one pair of them should be symmetric.
        flipped = array.permute(*range(array.ndim)[::-1])
        plain, turned = _is_symmetric(array), _is_symmetric(flipped)
        if plain == turned:
            expected = "transpose=True or False where the axes of the file are ambiguous"
            raise refuse(entry.name or "array", expected, f"the shape {shape}")
    if turned and not plain:
        array = array.permute(*range(array.ndim)[::-1])
    elif not plain:
        if not _are_vectors(shape):
            expected = "RDMs (..., K, K) or vectors (..., K (K - 1) / 2)"
            raise refuse(entry.name or "array", expected, f"the shape {shape}")
        array = square(array)
    if array.ndim == 5:
        array = array.mean(1)
    return array


def _is_symmetric(array: Tensor) -> bool:
    try:
        _halves(array, "")
    except ValueError:
        return False
    return True


def _halves(array: Tensor, name: str) -> Tensor:
    """Symmetric RDMs with a diagonal of zeros, from both halves or from the one that is filled."""
    array = array if array.is_floating_point() else array.to(torch.float64)
    if bool(array.isinf().any()):
        raise refuse(name or "array", "RDMs without infinite entries", describe(array))
    upper, lower = upper_triangle(array), upper_triangle(array.transpose(-1, -2))
    blank_upper, blank_lower = (_is_blank(half) for half in (upper, lower))
    if blank_upper != blank_lower:
        return square(lower if blank_upper else upper)
    check_symmetry(name or "array", array)
    return square(upper)


def _is_blank(half: Tensor) -> bool:
    return bool((half.isnan() | (half == 0)).all())
