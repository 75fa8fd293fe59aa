"""One record of a history, and how records are written as lines of a file."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import describe, refuse

Value = float | list[Any]

BATCH = "batch"
"""The stage of values of single batches."""

HEADER = {"format": "dynmetrics history 1"}


@dataclass(frozen=True)
class Record:
    """The results of one stage at one point of a run; curves are lists."""

    epoch: int
    step: int
    stage: str
    results: dict[str, Value]
    axes: dict[str, str]
    """The letters that number the entries of every curve: t over timesteps, c over classes."""
    run: int = 1
    """Which training of those that share the history, from 1."""


def number(name: str, value: Any) -> Value:
    """A result as a float or as nested lists of floats."""
    if isinstance(value, Tensor) and not value.is_complex():
        tensor = value.detach()
    else:
        tensor = torch.from_numpy(_real_array(name, value))
    numbers: Value = tensor.to("cpu", torch.float64).tolist()
    return numbers


def _real_array(name: str, value: Any) -> Any:
    """Whatever is no tensor as a float64 array: no plain number becomes float32 on the way."""
    import numpy as np

    array = None
    if not isinstance(value, Tensor):
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, RuntimeError):
            array = None  # nested lists of different lengths
    if array is None or array.dtype.kind not in "biuf":
        raise refuse(name, "real numbers", describe(value))
    return array.astype(np.float64)


def axis_letters(axes: Any) -> dict[str, str]:
    """The letters of every curve as one word."""
    if axes is None:
        return {}
    if isinstance(axes, Mapping):
        named = {name: list(own) for name, own in axes.items() if isinstance(own, Sequence)}
        if len(named) == len(axes) and all(
            isinstance(x, str) for own in named.values() for x in own
        ):
            return {name: "".join(own).lower() for name, own in named.items()}
    raise refuse("axes", "a mapping from names to axis letters, or None", describe(axes))


def whole(argument: str, value: Any) -> int:
    """A count of epochs or steps as an int."""
    try:
        count = operator.index(value)
    except TypeError:
        count = int(value) if isinstance(value, float) and value.is_integer() else -1
    if count < 0 or isinstance(value, bool):
        raise refuse(argument, "a whole number of at least 0", describe(value))
    return count


# --------------------------------------------------------------------------------------- the file


def content_to_continue(path: Path) -> bytes:
    """The whole lines of a history's file, to which more can be appended; begun if need be.

    Raises:
        ValueError: if `path` holds something else than a history.
    """
    if path.exists() and not path.is_file():
        raise refuse("path", "a file written by History", describe(str(path)))
    content = path.read_bytes() if path.exists() else b""
    # A crash may have left no more than the beginning of the first line.
    if json.dumps(HEADER).encode().startswith(content):
        path.parent.mkdir(parents=True, exist_ok=True)
        content = (json.dumps(HEADER) + "\n").encode()
        path.write_bytes(content)
        return content
    _entry(content.partition(b"\n")[0], 0, path)
    kept = _whole_lines(content)
    if len(kept) < len(content):
        os.truncate(path, len(kept))
    return kept


def append_line(path: Path, entry: Mapping[str, Any]) -> None:
    """Write an entry so that it is on disk when this returns."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
        file.flush()
        os.fsync(file.fileno())


def replace_lines(path: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    """Write the file anew; a crash leaves the old one or the new one."""
    new = path.with_name(path.name + ".new")
    new.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    new.replace(path)


def _whole_lines(content: bytes) -> bytes:
    """The content without a last line that a crash has cut short."""
    return content[: content.rfind(b"\n") + 1]


def entries(content: bytes, path: Path) -> Iterator[dict[str, Any]]:
    """What the lines of a history's file say; records as `Record` under the key "record".

    Raises:
        ValueError: if they are something else than a history.
    """
    _entry(content.partition(b"\n")[0], 0, path)
    for i, line in enumerate(_whole_lines(content).split(b"\n")[:-1]):
        entry = _entry(line, i, path)
        yield {"record": _record(entry, i, path)} if "results" in entry else entry


def _entry(line: bytes, i: int, path: Path) -> dict[str, Any]:
    text = line.decode("utf-8", errors="replace")
    try:
        entry = json.loads(text)
    except json.JSONDecodeError:
        entry = None
    if not isinstance(entry, dict) or (i == 0 and entry.get("format") != HEADER["format"]):
        got = f"{path} with {text[:40]!r} as line {i + 1}"
        raise refuse("path", "a file written by History", got)
    return entry


def _record(entry: dict[str, Any], i: int, path: Path) -> Record:
    try:
        return Record(**entry)
    except TypeError:
        got = f"{path}, spoilt in line {i + 1}"
        raise refuse("path", "a file written by History", got) from None
