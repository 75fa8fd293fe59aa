"""History: what a run has measured, epoch by epoch, kept on disk as it goes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import describe, refuse

Value = float | list[Any]

BATCH = "batch"
"""The stage of values of single batches."""


@dataclass(frozen=True)
class Record:
    """The results of one stage at one point of a run; curves are lists."""

    epoch: int
    step: int
    stage: str
    results: dict[str, Value]
    axes: dict[str, str]
    """The letters that number the entries of every curve: t over timesteps, c over classes."""


class History:
    r"""All results of a run, in the order in which they came.

    Train and validation are told apart by their stage, a curve is kept whole beside the scalars,
    and every record is on disk before `record` returns: a crash loses at most the running epoch.
    Read it as a table (`table`), as files (`to_csv`, `to_npz`), in pandas (`to_pandas`) or as a
    picture (`plot`).

    Args:
        path: a file of JSON lines to append to, or None to keep the history in memory only. A file
            that exists is continued; `load` reads one without a view to go on.
        directions: for names of results whether higher is better, as in
            `MetricSuite.higher_is_better`; what `best` goes by.

    Raises:
        ValueError: if `path` holds something else than a history.

    Example:
        >>> from dynmetrics.training import History
        >>> history = History(directions={"val_accuracy": True})
        >>> history.record({"val_accuracy": 0.5, "val_curve": [0.25, 0.75]}, epoch=1, step=10)
        >>> history.record({"val_accuracy": 0.75, "val_curve": [0.5, 1.0]}, epoch=2, step=20)
        >>> history.best("val_accuracy").epoch
        2
        >>> print(history.table())
        step  epoch  val_accuracy
          10      1        0.5000
          20      2        0.7500
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        directions: Mapping[str, bool | None] | None = None,
    ) -> None:
        self.path = None if path is None else Path(path)
        self.records: list[Record] = []
        self.directions: dict[str, bool | None] = {}
        self.stop_reason: str | None = None
        if self.path is not None and self.path.exists() and not _is_broken_header(self.path):
            self._read(self.path)
            _cut_broken_line(self.path)
        elif self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("", encoding="utf-8")
            self._append({"format": _FORMAT})
        self.add_directions(directions or {})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> History:
        """The history in the file `path`; what is recorded from now on stays in memory."""
        if not Path(path).is_file():
            raise refuse("path", "a file written by History", describe(str(path)))
        history = cls()
        history._read(Path(path))
        return history

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    # ------------------------------------------------------------------------- recording

    def record(
        self,
        results: Mapping[str, Any],
        *,
        epoch: int,
        step: int | None = None,
        stage: str = "val",
        axes: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Note the results of `stage` after `step` updates of the weights, in `epoch`.

        Args:
            results: scalars and tensors by name, as `MetricSuite.compute` returns them.
            epoch: 0 before training.
            step: if left out, the epoch.
            stage: "train", "val", "test", or a name of your own. "batch" is for values of single
                batches, which tables leave out and pictures show pale.
            axes: the axis letters of curves, as in `MetricSuite.axes`.
        """
        numbers = {str(name): _number(name, value) for name, value in results.items()}
        known = {name: "".join(letters).lower() for name, letters in (axes or {}).items()}
        letters = {n: known[n] for n, v in numbers.items() if isinstance(v, list) and n in known}
        record = Record(int(epoch), int(epoch if step is None else step), stage, numbers, letters)
        self._append(asdict(record))
        self.records.append(record)

    def rewind(self, n: int) -> None:
        """Forget all but the first `n` records: a run goes on from an earlier checkpoint."""
        self.records, self.stop_reason = self.records[:n], None
        if self.path is not None:
            head = [{"format": _FORMAT}, {"directions": self.directions}]
            lines = [json.dumps(entry) for entry in [*head, *map(asdict, self.records)]]
            new = self.path.with_name(self.path.name + ".new")
            new.write_text("\n".join(lines) + "\n", encoding="utf-8")
            new.replace(self.path)

    def add_directions(self, directions: Mapping[str, bool | None]) -> None:
        """Note for names of results whether higher is better."""
        new = {k: v for k, v in directions.items() if k not in self.directions}
        if new:
            self.directions.update(new)
            self._append({"directions": new})

    def stop(self, reason: str) -> None:
        """Note why the run ended."""
        self.stop_reason = reason
        self._append({"stop_reason": reason})

    # --------------------------------------------------------------------------- reading

    def scalars(self, stage: str | None = None) -> list[str]:
        """The names of all scalar results, in order of appearance."""
        if stage is None:
            chosen = [record for record in self.records if record.stage != BATCH]
        else:
            chosen = [record for record in self.records if record.stage == stage]
        names = [n for r in chosen for n, v in r.results.items() if not isinstance(v, list)]
        return list(dict.fromkeys(names))

    def best(self, name: str) -> Record:
        """The record in which the scalar `name` was best, by its direction; the first if several.

        Raises:
            ValueError: for a name that was never recorded, or has no direction.
        """
        higher = self.directions.get(name)
        if name not in self.scalars():
            raise refuse("name", f"one of {self.scalars()}", describe(name))
        if higher is None:
            raise refuse("name", "a result with a direction (see add_directions)", describe(name))
        known = [record for record in self.records if record.stage != BATCH]
        finite = [r for r in known if r.results.get(name, torch.nan) == r.results.get(name)]
        if not finite:
            raise refuse("name", "a result that is not always NaN", describe(name))
        return (max if higher else min)(finite, key=lambda record: _scalar(record, name))

    def table(self, names: list[str] | None = None) -> str:
        """The scalars as aligned text: a row for each step, blanks where nothing was evaluated."""
        from dynmetrics.training.tables import text_table

        return text_table(self, names)

    def to_csv(self, path: str | os.PathLike[str], form: str = "wide") -> None:
        """Write scalars, a row for each step ("wide"), or every number on its own row ("long")."""
        from dynmetrics.training.tables import write_csv

        write_csv(self, Path(path), form)

    def to_npz(self, path: str | os.PathLike[str]) -> None:
        """Write one array for each stage and result, (N,) or (N, T), curves padded with NaN."""
        from dynmetrics.training.tables import write_npz

        write_npz(self, Path(path))

    def to_pandas(self, form: str = "wide") -> Any:
        """The rows of `to_csv` as a pandas DataFrame."""
        from dynmetrics.training.tables import data_frame

        return data_frame(self, form)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """The progress of training as a matplotlib figure, also written to `path` if given."""
        from dynmetrics.plot import plot_training

        figure = plot_training(self)
        if path is not None:
            figure.savefig(path)
        return figure

    # ----------------------------------------------------------------------------- files

    def _append(self, entry: Mapping[str, Any]) -> None:
        if self.path is None:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self, path: Path) -> None:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        _entry(lines[0], 0, path)
        for i, line in enumerate(lines):
            # The last line may have been cut short by a crash; every other one is whole.
            if i + 1 == len(lines):
                break
            entry = _entry(line, i, path)
            if "results" in entry:
                self.records.append(_record(entry, i, path))
            self.directions.update(entry.get("directions", {}))
            self.stop_reason = entry.get("stop_reason", self.stop_reason)


_FORMAT = "dynmetrics history 1"
_WIDE = torch.float64


def _entry(line: str, i: int, path: Path) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        entry = None
    if not isinstance(entry, dict) or (i == 0 and entry.get("format") != _FORMAT):
        raise refuse(
            "path", "a file written by History", f"{path} with {line[:40]!r} as line {i + 1}"
        )
    return entry


def _record(entry: dict[str, Any], i: int, path: Path) -> Record:
    try:
        return Record(**entry)
    except TypeError:
        raise refuse(
            "path", "a file written by History", f"{path}, spoilt in line {i + 1}"
        ) from None


def _is_broken_header(path: Path) -> bool:
    """Whether a crash left no more than the beginning of a history's first line."""
    return json.dumps({"format": _FORMAT}).startswith(path.read_text("utf-8", errors="replace"))


def _cut_broken_line(path: Path) -> None:
    """Drop a last line that a crash has cut short, so that the next one starts afresh."""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        path.write_bytes(whole)


def _number(name: str, value: Any) -> Value:
    """A result as a float or as nested lists of floats."""
    if isinstance(value, complex) or (isinstance(value, Tensor) and value.is_complex()):
        raise refuse(str(name), "real numbers", describe(value))
    # A plain number would become float32 without a word.
    tensor = value.detach() if isinstance(value, Tensor) else torch.as_tensor(value, dtype=_WIDE)
    numbers: Value = tensor.to("cpu", torch.float64).tolist()
    return numbers


def _scalar(record: Record, name: str) -> float:
    value = record.results[name]
    assert not isinstance(value, list)
    return value
