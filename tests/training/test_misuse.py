"""What the history, the callback, the recorder and `evaluate` refuse, and in which words."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dynmetrics import Accuracy, MetricSuite, TemporalAccuracy
from dynmetrics.training import ActivationRecorder, History, MetricsCallback, evaluate
from tests.training.test_history import filled
from tests.training.toy import Scores, suite


def odd(value: Any) -> Any:
    """A value of a wrong type, which a checker of types would refuse as well."""
    return value


BATCHES = [(torch.eye(2), torch.tensor([0, 1]))]
ACCURACY = MetricSuite({"accuracy": Accuracy()})


def measured(**options: Any) -> Any:
    arguments = {"model": nn.Identity(), "loader": BATCHES, "suite": ACCURACY, **options}
    return evaluate(**arguments)


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("path", lambda: History(odd(3))),
        ("path", lambda: History(Path(__file__).parent)),
        ("path", lambda: History.load(odd(None))),
        ("directions", lambda: History(directions=odd(["val_accuracy"]))),
        ("directions", lambda: History(directions={"val_accuracy": odd("max")})),
        ("results", lambda: History().record(odd(None), epoch=1)),
        ("results", lambda: History().record(odd(0.5), epoch=1)),
        ("a", lambda: History().record({"a": None}, epoch=1)),
        ("a", lambda: History().record({"a": "0.5"}, epoch=1)),
        ("a", lambda: History().record({"a": [[1.0], [1.0, 2.0]]}, epoch=1)),
        ("a", lambda: History().record({"a": {"b": 1.0}}, epoch=1)),
        ("epoch", lambda: History().record({"a": 1.0}, epoch=odd(None))),
        ("epoch", lambda: History().record({"a": 1.0}, epoch=-1)),
        ("epoch", lambda: History().record({"a": 1.0}, epoch=odd(1.5))),
        ("step", lambda: History().record({"a": 1.0}, epoch=1, step=odd("2"))),
        ("step", lambda: History().record({"a": 1.0}, epoch=1, step=odd(True))),
        ("stage", lambda: History().record({"a": 1.0}, epoch=1, stage="")),
        ("stage", lambda: History().record({"a": 1.0}, epoch=1, stage=odd(None))),
        ("axes", lambda: History().record({"a": [1.0]}, epoch=1, axes=odd("T"))),
        ("axes", lambda: History().record({"a": [1.0]}, epoch=1, axes={"a": odd(1)})),
        ("reason", lambda: History().stop(odd(None))),
        ("names", lambda: filled().table(["nothing"])),
        ("names", lambda: filled().table(["val_loss", "nothing"])),
        ("names", lambda: filled().table(["val_curve"])),
        ("names", lambda: filled().table("val_loss")),
        ("names", lambda: filled().table(odd(3))),
        ("missing", lambda: filled().table(["val_loss"], missing="skip")),
        ("form", lambda: filled().to_pandas("tall")),
        ("name", lambda: filled().best(odd(None))),
        ("suite", lambda: MetricsCallback(odd(Accuracy()))),
        ("train", lambda: MetricsCallback(ACCURACY, train=odd("no"))),
        ("log_curves", lambda: MetricsCallback(ACCURACY, log_curves=odd(None))),
        ("figures", lambda: MetricsCallback(ACCURACY, figures=odd("png"))),
        ("verbose", lambda: MetricsCallback(ACCURACY, verbose=odd(1))),
        ("inputs", lambda: MetricsCallback(ACCURACY, inputs=odd("logits"))),
        ("inputs", lambda: MetricsCallback(ACCURACY, inputs={"preds": odd(None)})),
        ("inputs", lambda: MetricsCallback(ACCURACY, inputs={"predz": "logits"})),
        ("picture", lambda: MetricsCallback(ACCURACY, picture=odd(True))),
        ("picture", lambda: MetricsCallback(ACCURACY, picture="progress")),
        ("picture", lambda: MetricsCallback(ACCURACY, picture="progress.txt")),
        ("path", lambda: MetricsCallback(ACCURACY, history=odd(3))),
        ("name", lambda: MetricsCallback(ACCURACY).direction("val_nothing")),
        ("name", lambda: MetricsCallback(ACCURACY).direction(odd(None))),
        ("model", lambda: measured(model=odd(torch.sigmoid))),
        ("loader", lambda: measured(loader=odd(None))),
        ("suite", lambda: measured(suite=odd(Accuracy()))),
        ("device", lambda: measured(device="gpu7")),
        ("device", lambda: measured(device=odd([1]))),
        ("progress", lambda: measured(progress=odd("bar"))),
        ("inputs", lambda: measured(inputs=odd(3))),
        ("inputs", lambda: measured(inputs=odd(lambda outputs, batch: None))),
        ("model", lambda: ActivationRecorder(odd(torch.sigmoid), ["a"])),
        ("layers", lambda: ActivationRecorder(nn.Linear(2, 2), odd(None))),
        ("layers", lambda: ActivationRecorder(nn.Linear(2, 2), {"": odd(3)})),
        ("layers", lambda: ActivationRecorder(nn.Linear(2, 2), odd([None]))),
        ("reduce", lambda: ActivationRecorder(nn.Linear(2, 2), [""], reduce=odd("mean"))),
        ("time", lambda: ActivationRecorder(nn.Linear(2, 2), [""], time=odd(None))),
    ],
)
def test_misuse_is_named(argument: str, call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=rf"^{argument}: expected .+, got .+") as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_refused_record_leaves_the_history_as_it_was(tmp_path: Path) -> None:
    history = filled(tmp_path / "h.jsonl")
    before = (tmp_path / "h.jsonl").read_bytes()
    with pytest.raises(ValueError, match="a: expected real numbers"):
        history.record({"val_loss": 0.5, "a": None}, epoch=4)
    assert len(history) == len(filled())
    assert (tmp_path / "h.jsonl").read_bytes() == before


def test_a_column_may_be_blank_as_yet() -> None:
    text = filled().table(["val_loss", "test_loss"], missing="blank").splitlines()
    assert text[0].split() == ["step", "epoch", "val_loss", "test_loss"]
    assert text[1].split() == ["0", "0", "2.5000"]


def test_a_history_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening and loading: one reading each, of however long a file."""
    path = tmp_path / "h.jsonl"
    filled(path)
    opened: list[str] = []
    real = io.open

    def counting(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if str(file) == str(path):
            opened.append(mode)
        return real(file, mode, *args, **kwargs)

    monkeypatch.setattr(io, "open", counting)
    assert History(path).table() == filled().table()
    assert [mode for mode in opened if mode.startswith("r")] == ["rb"]
    opened.clear()
    History.load(path)
    assert [mode for mode in opened if mode.startswith("r")] == ["rb"]


@pytest.mark.parametrize("kind", [">f8", ">f4", ">i4", "<f2", "?"])
def test_arrays_of_any_byte_order_are_recorded(kind: str) -> None:
    history = History()
    history.record({"a": np.array([0, 1]).astype(kind), "b": [torch.tensor(1.5)] * 2}, epoch=1)
    assert history.records[0].results == {"a": [0.0, 1.0], "b": [1.5, 1.5]}


def test_histories_without_runs_still_load(tmp_path: Path) -> None:
    """A line as it was written before there were runs."""
    path = tmp_path / "h.jsonl"
    path.write_text(
        '{"format": "dynmetrics history 1"}\n'
        '{"epoch": 1, "step": 2, "stage": "val", "results": {"val_a": 0.5}, "axes": {}}\n'
    )
    assert History.load(path).records[0].run == 1


def test_the_function_is_given_what_the_loader_yielded() -> None:
    """The very batch, whatever its structure, and all outputs of the model by name."""
    data = Scores(9, 3, 0)
    seen: list[Any] = []

    def inputs(outputs: Any, batch: Any) -> dict[str, Any]:
        seen.append(batch)
        scores, (labels, weight) = batch
        assert weight == "heavy"
        assert outputs["preds"] is scores
        return {"preds": outputs["preds"], "target": labels}

    batches = [(scores, (labels, "heavy")) for scores, labels in data.tuples(4)]
    result = evaluate(nn.Identity(), batches, MetricSuite({"a": TemporalAccuracy()}), inputs=inputs)
    assert float(result["a"]) == pytest.approx(data.accuracy()[0], abs=1e-12)
    assert all(one is other for one, other in zip(seen, batches, strict=True))


def test_batches_keep_their_structure_when_they_are_moved() -> None:
    """On another device: tuples stay tuples, named ones too, and objects move themselves."""
    from collections import namedtuple

    from dynmetrics.training.evaluation import moved

    pair = namedtuple("pair", "x y")
    batch = {"a": (torch.ones(2), [torch.ones(1), "b"]), "c": pair(torch.ones(3), 4)}
    meta = moved(batch, torch.device("meta"))
    assert isinstance(meta["a"], tuple)
    assert isinstance(meta["a"][1], list)
    assert isinstance(meta["c"], pair)
    assert meta["c"].x.is_meta
    assert meta["a"][1][0].is_meta
    assert meta["c"].y == 4
    packed = nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    assert moved([packed], torch.device("meta"))[0].data.is_meta


def test_inputs_of_one_stage_only_may_be_renamed() -> None:
    """The name is taken by the suite of some stage: that will do."""
    both = MetricsCallback(suite(), train=ACCURACY, inputs={"mask": "shown"}, verbose=False)
    assert both.direction("train_accuracy") == "max"
