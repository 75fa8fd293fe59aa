"""Every figure, from real results of metrics: what is drawn where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dynmetrics import Accuracy, DecisionLatency, SuccessRate, TemporalAccuracy
from dynmetrics.plot import (
    plot_curve,
    plot_interval,
    plot_layer_responses,
    plot_rdm,
    plot_result,
    plot_scores,
    plot_survival,
    plot_temporal_rsa,
)
from tests.training.test_history import filled


def accuracy(**options: Any) -> TemporalAccuracy:
    metric = TemporalAccuracy(**options)
    logits = torch.randn(20, 6, 4, generator=torch.Generator().manual_seed(0))
    metric.update(logits, torch.arange(20) % 4)
    return metric


def test_a_curve_and_its_band() -> None:
    result = accuracy(confidence=0.95).compute()
    figure = plot_curve(result, dt=10.0, stimulus=torch.arange(6) < 3, chance=0.25, title="t")
    [axis] = figure.axes
    lines = {line.get_label(): line for line in axis.lines}
    np.testing.assert_allclose(lines["accuracy"].get_ydata(), result["accuracy"])
    np.testing.assert_allclose(lines["accuracy"].get_xdata(), np.arange(6) * 10.0)
    assert set(lines) == {"accuracy", "chance"}
    assert len(axis.collections) == 1
    vertices = axis.collections[0].get_paths()[0].vertices
    assert vertices[:, 1].max() == pytest.approx(float(result["high"].max()))


def test_several_k_have_their_own_bands() -> None:
    figure = plot_curve(accuracy(top_k=(1, 3), confidence=0.9).compute())
    [axis] = figure.axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["top1", "top3"]
    assert len(axis.collections) == 2


def test_a_suite_result_and_a_bare_curve() -> None:
    result = {f"val_accuracy_{k}": v for k, v in accuracy(confidence=0.9).compute().items()}
    [axis] = plot_curve(result).axes
    assert axis.get_ylabel() == "val accuracy accuracy"
    assert len(axis.collections) == 1
    [axis] = plot_curve([0.5, float("nan"), 1.0]).axes
    assert np.isnan(axis.lines[0].get_ydata()[1])


def test_matrices() -> None:
    matrix = torch.tensor([[0.0, 1.0, 3.0], [1.0, 0.0, float("nan")], [3.0, 2.0, 0.0]])
    [axis, bar] = plot_rdm(matrix, conditions=["a", "b", "c"], ranks=True, title="RDM").axes
    shown = axis.images[0].get_array()
    assert (shown[0, 0], shown[0, 2]) == (0.0, 100.0)
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a", "b", "c"]
    assert "percentile" in bar.get_ylabel()
    [axis, _] = plot_temporal_rsa({"rho": matrix}, dt=5.0, times=[0, 10, 20], title="t").axes
    marker = axis.lines[0]
    assert (marker.get_xdata()[0], marker.get_ydata()[0]) == (20, 0.0)
    [axis] = plot_scores([[1.0, 5.0], [2.0, 4.0]], rows=["V1", "IT"], columns=["a", "b"]).axes
    bold = [text.get_text() for text in axis.texts if text.get_fontweight() == "bold"]
    assert bold == ["5", "2"]


def test_intervals_of_tasks() -> None:
    metric = SuccessRate(num_tasks=2)
    metric.update(torch.tensor([True, False, True, True]), task=torch.tensor([0, 0, 1, 1]))
    [axis] = plot_interval(metric.compute(), labels=["reach", "push"], reference=0.5).axes
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["rate", "reach", "push"]
    points = [line.get_xdata()[0] for line in axis.lines if line.get_marker() == "o"]
    assert points == [0.75, 0.5, 1.0]
    [axis] = plot_interval({"a": (0.1, 0.0, 0.2)}, title="t").axes
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["a"]


def test_layers_and_survival() -> None:
    results = {"V1_response_avg": torch.rand(4), "IT_response_avg": torch.rand(3, 4)}
    figure = plot_layer_responses(results, stimulus=[True, True, False, False])
    assert [axis.get_ylabel() for axis in figure.axes] == ["V1", "IT"]
    assert [len(axis.lines) for axis in figure.axes] == [1, 3]
    [axis] = plot_survival({"survival": torch.tensor([1.0, 0.5, 0.5])}, title="t").axes
    assert list(axis.lines[0].get_ydata()) == [1.0, 0.5, 0.5]


def test_any_result_by_its_axes() -> None:
    assert plot_result(accuracy()).axes[0].lines[0].get_label() == "accuracy"
    by_class = plot_result(accuracy(average="none", num_classes=4))
    assert len(by_class.axes[0].patches) == 4
    classes = Accuracy(average="none", num_classes=3)
    classes.update(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 1]))
    assert [bar.get_height() for bar in plot_result(classes).axes[0].patches][:2] == [1.0, 0.5]
    latency = DecisionLatency()
    latency.update(torch.eye(3)[[0, 1, 1]].unsqueeze(0), torch.tensor([1]))
    assert [bar.get_height() for bar in plot_result(latency).axes[0].patches] == [0.0, 1.0, 0.0]
    scalar = Accuracy()
    scalar.update(torch.tensor([0]), torch.tensor([0]))
    with pytest.raises(ValueError, match="a result with an axis"):
        plot_result(scalar)


def test_the_progress_of_training(tmp_path: Path) -> None:
    figure = filled().plot(tmp_path / "progress.png")
    assert (tmp_path / "progress.png").stat().st_size > 10_000
    loss, metrics, curve = figure.axes
    assert loss.get_ylabel() == "loss"
    labels = [line.get_label() for line in metrics.lines]
    assert labels == ["train accuracy", "val accuracy"]
    assert list(curve.lines[0].get_ydata()) == [0.25] * 3
    assert "max_epochs=3" in figure.get_supxlabel()


@pytest.mark.parametrize(
    "call",
    [
        lambda: plot_curve({"overall": torch.tensor(0.5)}),
        lambda: plot_curve({"a": torch.rand(3)}, names=["b"]),
        lambda: plot_rdm(torch.rand(2, 3)),
        lambda: plot_rdm(torch.rand(3)),
        lambda: plot_scores(torch.rand(2, 2), rows=["a"], columns=["b", "c"]),
        lambda: plot_interval({"rate": 0.5}),
        lambda: plot_layer_responses({"V1_response_avg": torch.rand(3)}, "other"),
        lambda: plot_survival({}),
    ],
)
def test_misuse_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"\w+: expected .+, got .+"):
        call()
