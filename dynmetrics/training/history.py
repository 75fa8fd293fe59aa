"""History: what a run has measured, epoch by epoch, kept on disk as it goes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dynmetrics.core.checks import describe, refuse
from dynmetrics.training.records import (
    BATCH,
    HEADER,
    Record,
    Value,
    append_line,
    axis_letters,
    content_to_continue,
    entries,
    number,
    replace_lines,
    whole,
)

__all__ = ["BATCH", "History", "Record", "Value"]


class History:
    r"""All results of a run, in the order in which they came.

    Train and validation are told apart by their stage, a curve is kept whole beside the scalars,
    and every record is on disk before `record` returns: a crash loses at most the running epoch.
    Read it as a table (`table`), as files (`to_csv`, `to_npz`), in pandas (`to_pandas`) or as a
    picture (`plot`).

    Several trainings may share a history, one after the other: each is a run, numbered from 1.
    `begin_run` starts the next, whose rows stand apart even where steps and epochs repeat; tables
    and files then have a column `run`, and pictures show the last one. `MetricsCallback` begins a
    run at every fit that is no continuation of the one before.

    Args:
        path: a file of JSON lines to append to, or None to keep the history in memory only. A file
            that exists is continued; `load` reads one without a view to go on.
        directions: for names of results whether higher is better, as in
            `MetricSuite.higher_is_better`; what `best` goes by.

    Raises:
        ValueError: if `path` is no path or holds something else than a history.

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
        if path is not None and not isinstance(path, (str, os.PathLike)):
            raise refuse("path", "a path or None", describe(path))
        self.path = None if path is None else Path(path)
        self.records: list[Record] = []
        self.directions: dict[str, bool | None] = {}
        self.stop_reason: str | None = None
        self.run = 1
        """The run to which the next records belong."""
        if self.path is not None:
            self._take(content_to_continue(self.path), self.path)
        self.add_directions({} if directions is None else directions)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> History:
        """The history in the file `path`; what is recorded from now on stays in memory."""
        if not isinstance(path, (str, os.PathLike)) or not Path(path).is_file():
            raise refuse("path", "a file written by History", describe(path))
        history = cls()
        history._take(Path(path).read_bytes(), Path(path))
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

        Raises:
            ValueError: for results that are no numbers, and for an epoch or step that is none.
        """
        if not isinstance(results, Mapping):
            raise refuse("results", "a mapping from names to numbers", describe(results))
        if not isinstance(stage, str) or not stage:
            raise refuse("stage", "the name of a stage", describe(stage))
        place = whole("epoch", epoch), whole("step", epoch if step is None else step)
        numbers = {str(name): number(str(name), value) for name, value in results.items()}
        known = axis_letters(axes)
        letters = {n: known[n] for n, v in numbers.items() if isinstance(v, list) and n in known}
        record = Record(*place, stage, numbers, letters, self.run)
        self._append(asdict(record))
        self.records.append(record)

    @property
    def is_trained(self) -> bool:
        """Whether the run has got beyond its start: a step was made, or an end was noted."""
        steps = [record.step for record in self.records if record.run == self.run]
        return max(steps, default=0) > 0 or self.stop_reason is not None

    def begin_run(self) -> None:
        """From here on records belong to the next run; nothing happens if this one has none yet."""
        if any(record.run == self.run for record in self.records):
            self.run = 1 + max(record.run for record in self.records)
            self.stop_reason = None
            self._append({"run": self.run})

    def resume(self, records: Iterable[Record], run: int | None = None) -> None:
        """Go on from the records of a checkpoint, in their run; later runs stay as they are."""
        known = list(records)
        self.run = (known[-1].run if known else 1) if run is None else run
        later = [record for record in self.records if record.run > self.run]
        self.records = known + later
        self._rewrite()

    def rewind(self, n: int) -> None:
        """Forget all but the first `n` records: a run goes on from an earlier checkpoint."""
        self.records = self.records[:n]
        self.run = self.records[-1].run if self.records else 1
        self._rewrite()

    def add_directions(self, directions: Mapping[str, bool | None]) -> None:
        """Note for names of results whether higher is better."""
        known = directions.values() if isinstance(directions, Mapping) else ["none"]
        if any(value is not None and not isinstance(value, bool) for value in known):
            raise refuse("directions", "names with True, False or None", describe(directions))
        new = {k: v for k, v in directions.items() if k not in self.directions}
        if new:
            self.directions.update(new)
            self._append({"directions": new})

    def stop(self, reason: str) -> None:
        """Note why the run ended."""
        if not isinstance(reason, str):
            raise refuse("reason", "a string", describe(reason))
        self.stop_reason = reason
        self._append({"stop_reason": reason})

    def go_on(self) -> None:
        """Note that the run has not ended after all."""
        if self.stop_reason is not None:
            self.stop_reason = None
            self._append({"stop_reason": None})

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
        finite = [r for r in known if name in r.results and not math.isnan(_scalar(r, name))]
        if not finite:
            raise refuse("name", "a result that is not always NaN", describe(name))
        return (max if higher else min)(finite, key=lambda record: _scalar(record, name))

    def table(self, names: Sequence[str] | None = None, *, missing: str = "error") -> str:
        """The scalars as aligned text: a row for each step, blanks where nothing was evaluated.

        Args:
            names: the columns; by default all scalars.
            missing: for a name that was never recorded, "error", or "blank" for a column that is
                empty as yet: a table printed while the run goes on keeps its columns.

        Raises:
            ValueError: for a name that is not among the scalars.
        """
        from dynmetrics.training.tables import text_table

        return text_table(self, names, missing)

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

    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        names: Sequence[str] | None = None,
        smooth: float = 0.9,
    ) -> Any:
        """The progress of the last run as a matplotlib figure, also written to `path` if given.

        Args:
            path: a picture, of a kind that its suffix names.
            names: the results to draw without their stage, such as "accuracy".
            smooth: the weight of the past in the average of batches; see `plot_training`.

        Raises:
            ValueError: for a name without a result, and for a history without a record.
        """
        from dynmetrics.plot import plot_training

        figure = plot_training(self, names=names, smooth=smooth)
        if path is not None:
            figure.savefig(path)
        return figure

    # ----------------------------------------------------------------------------- files

    def _append(self, entry: Mapping[str, Any]) -> None:
        if self.path is not None:
            append_line(self.path, entry)

    def _rewrite(self) -> None:
        """The file anew, after records were taken away."""
        self.stop_reason = None
        if self.path is not None:
            head: list[Mapping[str, Any]] = [HEADER, {"directions": self.directions}]
            replace_lines(self.path, [*head, *map(asdict, self.records), {"run": self.run}])

    def _take(self, content: bytes, path: Path) -> None:
        for entry in entries(content, path):
            if "record" in entry:
                self.records.append(entry["record"])
                self.run = self.records[-1].run
            if "run" in entry:
                self.run, self.stop_reason = entry["run"], None
            self.directions.update(entry.get("directions", {}))
            self.stop_reason = entry.get("stop_reason", self.stop_reason)


def _scalar(record: Record, name: str) -> float:
    value = record.results[name]
    assert not isinstance(value, list)
    return value
