"""What cannot be drawn is refused in one line, in every picture; what only looks odd is drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dynmetrics import Accuracy, SuccessRate, TemporalAccuracy
from dynmetrics.plot import (
    plot_curve,
    plot_interval,
    plot_layer_responses,
    plot_rdm,
    plot_result,
    plot_scores,
    plot_survival,
    plot_temporal_rsa,
    plot_training,
)
from dynmetrics.training import History
from tests.training.test_history import filled


def odd(value: Any) -> Any:
    """A value of a wrong type, which a checker of types would refuse as well."""
    return value


CURVE = {"accuracy": torch.rand(4)}
RDM = torch.rand(3, 3)
TASKS = {
    "rate": 0.5, "low": 0.25, "high": 0.75,
    "task_rate": [0.5, 0.5], "task_low": [0.25, 0.25], "task_high": [0.75, 0.75],
}  # fmt: skip
RESPONSES = {"V1_response_avg": torch.rand(4)}


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("results", lambda: plot_curve(None)),
        ("results", lambda: plot_curve("accuracy")),
        ("results", lambda: plot_curve([])),
        ("results", lambda: plot_curve(torch.rand(2, 3))),
        ("results", lambda: plot_curve([1.0, [2.0]])),
        ("results", lambda: plot_curve({"a": None})),
        ("results", lambda: plot_curve({"a": torch.rand(3) + 1j})),
        ("results", lambda: plot_curve({1: torch.rand(3)})),
        ("names", lambda: plot_curve(CURVE, names="accuracy")),
        ("names", lambda: plot_curve(CURVE, names=[])),
        ("names", lambda: plot_curve(CURVE, names=["accuracy", "nothing"])),
        ("names", lambda: plot_curve(CURVE, names=odd(3))),
        ("dt", lambda: plot_curve(CURVE, dt=0.0)),
        ("dt", lambda: plot_curve(CURVE, dt=odd("2 ms"))),
        ("chance", lambda: plot_curve(CURVE, chance=float("nan"))),
        ("chance", lambda: plot_curve(CURVE, chance=odd("1/4"))),
        ("stimulus", lambda: plot_curve(CURVE, stimulus=torch.ones(2, 4))),
        ("stimulus", lambda: plot_curve(CURVE, stimulus="1100")),
        ("title", lambda: plot_curve(CURVE, title=odd(3))),
        ("rdm", lambda: plot_rdm(None)),
        ("rdm", lambda: plot_rdm(torch.empty(0, 0))),
        ("conditions", lambda: plot_rdm(RDM, conditions=["a", "b"])),
        ("conditions", lambda: plot_rdm(RDM, conditions="abc")),
        ("conditions", lambda: plot_rdm(RDM, conditions=odd(3))),
        ("ranks", lambda: plot_rdm(RDM, ranks=odd(1))),
        ("results", lambda: plot_temporal_rsa({"score": RDM})),
        ("results", lambda: plot_temporal_rsa(None)),
        ("dt", lambda: plot_temporal_rsa(RDM, dt=-1.0)),
        ("times", lambda: plot_temporal_rsa(RDM, times=[0, 1])),
        ("times", lambda: plot_temporal_rsa(RDM, times="abc")),
        ("scores", lambda: plot_scores(None, rows=["a"], columns=["b"])),
        ("rows", lambda: plot_scores(RDM, rows=["a"], columns=["a", "b", "c"])),
        ("columns", lambda: plot_scores(RDM, rows=["a", "b", "c"], columns=odd(None))),
        ("results", lambda: plot_interval(odd(None))),
        ("results", lambda: plot_interval({})),
        ("results", lambda: plot_interval({"a": (1.0, 2.0)})),
        ("results", lambda: plot_interval({"a": "abc"})),
        ("results", lambda: plot_interval({"a": ("x", "y", "z")})),
        ("results", lambda: plot_interval({**TASKS, "task_low": [0.5]})),
        ("results", lambda: plot_interval({k: v for k, v in TASKS.items() if k != "task_low"})),
        ("labels", lambda: plot_interval(TASKS, labels=["reach"])),
        ("labels", lambda: plot_interval(TASKS, labels="ab")),
        ("labels", lambda: plot_interval({"a": (0.1, 0.0, 0.2)}, labels=["a"])),
        ("reference", lambda: plot_interval(TASKS, reference=odd("0"))),
        ("results", lambda: plot_layer_responses(odd(None))),
        ("results", lambda: plot_layer_responses({"V1_response_avg": 0.5})),
        ("measure", lambda: plot_layer_responses(RESPONSES, "")),
        ("measure", lambda: plot_layer_responses(RESPONSES, odd(None))),
        ("dt", lambda: plot_layer_responses(RESPONSES, dt=0)),
        ("results", lambda: plot_survival(odd(None))),
        ("survival", lambda: plot_survival({"survival": torch.rand(2, 2)})),
        ("metric", lambda: plot_result(None)),
        ("results", lambda: plot_result(TemporalAccuracy(), torch.rand(3))),
        ("results", lambda: plot_result(Accuracy(), {"value": torch.rand(3)})),
        ("history", lambda: plot_training(None)),
        ("history", lambda: plot_training(History())),
        ("names", lambda: plot_training(filled(), names=["nothing"])),
        ("names", lambda: plot_training(filled(), names="accuracy")),
        ("names", lambda: filled().plot(names=["val_accuracy"])),
        ("smooth", lambda: plot_training(filled(), smooth=1.5)),
        ("smooth", lambda: filled().plot(smooth=odd(None))),
    ],
)
def test_misuse_is_named(argument: str, call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=rf"^{argument}: expected .+, got .+") as caught:
        call()
    assert "\n" not in str(caught.value)


def ticks(figure: Any) -> list[str]:
    return [tick.get_text() for tick in figure.axes[0].get_yticklabels()]


def test_labels_may_repeat() -> None:
    """Two tasks of one name are two lines, and so is a task that is called like the whole."""
    metric = SuccessRate(num_tasks=3)
    metric.update(torch.tensor([True, False, True]), task=torch.tensor([0, 1, 2]))
    figure = plot_interval(metric.compute(), labels=["push", "push", "rate"])
    assert ticks(figure) == ["rate", "push", "push", "rate"]
    points = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert points == [pytest.approx(2 / 3), 1.0, 0.0, 1.0]
    assert ticks(plot_interval(metric.compute(), labels=np.array(["a", "b", "c"])))[1:] == list(
        "abc"
    )


@pytest.mark.parametrize("kind", [">f8", ">f4", "<f2", ">i4", "u2"])
def test_arrays_of_any_byte_order(kind: str) -> None:
    values = np.array([0, 1, 2, 3]).astype(kind)
    [line] = plot_curve(values).axes[0].lines
    assert list(line.get_ydata()) == [0.0, 1.0, 2.0, 3.0]
    [line] = plot_curve({"a": np.array([0.5, 1.5], ">f8")}).axes[0].lines
    assert list(line.get_ydata()) == [0.5, 1.5]


def test_half_precision_and_graphs_are_drawn() -> None:
    curve = torch.tensor([0.5, 0.25], dtype=torch.bfloat16, requires_grad=True)
    [line] = plot_curve({"a": curve}).axes[0].lines
    assert list(line.get_ydata()) == [0.5, 0.25]


def test_matrices_without_a_number_are_drawn() -> None:
    nothing = torch.full((2, 2), torch.nan)
    figure = plot_scores(nothing, rows=["a", "b"], columns=["c", "d"])
    assert {text.get_color() for text in figure.axes[0].texts} == {"black"}
    for figure in (plot_rdm(nothing), plot_rdm(nothing, ranks=True), plot_temporal_rsa(nothing)):
        figure.canvas.draw()


def test_names_without_a_stage_are_drawn_too() -> None:
    history = History()
    for epoch in (1, 2, 3):
        history.record({"accuracy": 0.1 * epoch}, epoch=epoch, stage="val")
        history.record({"accuracy": 0.2 * epoch}, epoch=epoch, stage="probe")
    [axis] = history.plot(names=["accuracy"]).axes
    lines = {line.get_label(): list(line.get_ydata()) for line in axis.lines}
    assert lines == {
        "val accuracy": pytest.approx([0.1, 0.2, 0.3]),
        "probe accuracy": pytest.approx([0.2, 0.4, 0.6]),
    }


def test_a_history_of_batches_alone_is_drawn_and_nan_spoils_no_average() -> None:
    history = History()
    for step, loss in enumerate((1.0, float("nan"), 3.0), 1):
        history.record({"train_loss": loss}, epoch=1, step=step, stage="batch")
    [axis] = history.plot(smooth=0.5).axes
    _, smoothed = axis.lines
    assert list(smoothed.get_ydata()) == pytest.approx([1.0, 1.0, (0.25 * 1 + 0.5 * 3) / 0.75])
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["train loss, batches"]


def test_bounds_of_several_k_are_no_curves_of_training(tmp_path: Path) -> None:
    names = ("val_top1", "val_low_top1", "val_high_top1", "val_valid")
    history = History()
    history.record({name: [0.5, 0.5] for name in names}, epoch=1, axes=dict.fromkeys(names, ("T",)))
    [axis] = history.plot(tmp_path / "p.png").axes
    assert [line.get_label() for line in axis.lines] == ["val top1"]
