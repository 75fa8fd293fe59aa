"""Defects that a stranger found once, with the right value or a clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torchmetrics.classification import MulticlassAccuracy

import dynmetrics.control as control
import dynmetrics.temporal as temporal
from dynmetrics import (
    RDM,
    Accuracy,
    AreaUnderAccuracy,
    LayerResponse,
    LiDAR,
    MetricSuite,
    RecallAtK,
    SuccessRate,
    TemporalAccuracy,
    TemporalConfidence,
)
from dynmetrics.plot import plot_temporal_rsa
from dynmetrics.prediction import chamfer_distance
from dynmetrics.training import ActivationRecorder, History, evaluate

LOGITS = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
LABELS = torch.tensor([[0, 0]])


def test_a_history_never_touches_a_foreign_file(tmp_path: Path) -> None:
    for text in ('{"lr": 0.1}', "notes", "a\nb"):
        path = tmp_path / "file"
        path.write_text(text)
        with pytest.raises(ValueError, match="path: expected"):
            History(path)
        assert path.read_text() == text


@pytest.mark.parametrize("start", ["", '{"format": "dynm'])
def test_a_history_whose_header_was_cut_begins_anew(tmp_path: Path, start: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(start)
    History(path).record({"val_a": 1.0}, epoch=1)
    assert len(History.load(path)) == 1


def test_the_best_epoch_is_no_batch() -> None:
    history = History(directions={"train_loss": False})
    history.record({"train_loss": 0.01}, epoch=1, step=1, stage="batch")
    history.record({"train_loss": 0.3}, epoch=1, step=10, stage="train")
    assert history.best("train_loss").stage == "train"


def test_what_is_recorded_is_not_overwritten() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    x = -torch.ones(2, 3)
    with ActivationRecorder(model, ["0"]) as recorder:
        model(x)
        torch.testing.assert_close(recorder.activations["0"][:, 0], model[0](x).detach())
        with recorder.paused():
            model(x)
    wrong: list[Any] = [{"0": []}, 3, None]
    for layers in wrong:
        with pytest.raises(ValueError, match="layers: expected"):
            ActivationRecorder(model, layers)


def test_evaluation_leaves_every_module_in_its_mode() -> None:
    model = nn.Sequential(nn.Identity(), nn.BatchNorm1d(2))
    model.train()
    model[1].eval()
    batches = [(torch.eye(2), torch.tensor([0, 1]))]
    evaluate(model, batches, MetricSuite({"a": Accuracy()}))
    assert model.training
    assert not model[1].training


def test_a_suite_saves_the_states_of_torchmetrics() -> None:
    def suite() -> MetricSuite:
        return MetricSuite({"m": MulticlassAccuracy(2, average="micro"), "a": Accuracy()})

    one, other = suite(), suite()
    one.update(preds=torch.eye(2), target=torch.tensor([0, 0]))
    other.load_state_dict(one.state_dict())
    other.update(preds=torch.eye(2), target=torch.tensor([0, 1]))
    assert float(other.compute()["m"]) == 0.75


def test_states_may_be_narrower_than_what_is_added() -> None:
    metric = TemporalConfidence().set_dtype(torch.float32)
    metric.update(LOGITS, LABELS)
    assert metric.compute()["guess"].dtype is torch.float32


def test_layers_merge_by_name_or_not_at_all() -> None:
    one, other, stranger = (LayerResponse(measures=("response_avg",)) for _ in range(3))
    a, b = torch.ones(2, 3, 4), torch.full((2, 3, 4), 5.0)
    one.update({"V1": a, "IT": b})
    other.update({"IT": b, "V1": a})
    stranger.update({"V4": a})
    one.merge_state(other)
    assert one.compute()["IT_response_avg"].tolist() == [5.0] * 3
    with pytest.raises(ValueError, match="activations: expected the layers"):
        one.merge_state(stranger)
    one({"IT": b, "V1": a})
    assert one.compute()["V1_response_avg"].tolist() == [1.0] * 3


@pytest.mark.parametrize("label", [float("inf"), 1e20, float("nan")])
def test_labels_beyond_integers_are_refused(label: float) -> None:
    with pytest.raises(ValueError, match="target: expected whole numbers"):
        temporal.temporal_accuracy(LOGITS, torch.tensor([label]))


def test_nothing_seen_per_class_and_empty_batches() -> None:
    with pytest.warns(UserWarning, match="before any update"):
        assert AreaUnderAccuracy(average="none").compute().shape == (0,)
    metric = Accuracy(average="macro")
    metric.update(torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64))
    metric.update(torch.eye(4), torch.arange(4))
    assert float(metric.compute()) == 1.0


def test_labels_without_room_for_a_fill_are_widened() -> None:
    for labels in (torch.tensor([[True, False]]), torch.tensor([[1, 0]], dtype=torch.uint8)):
        assert temporal.shift_labels(labels, 1).tolist() == [[-1, 1, 0]]


@pytest.mark.parametrize("name", ["temporal_accuracy", "confidence_over_time", "decision_latency"])
def test_functions_take_row_statistics_and_refuse_lists(name: str) -> None:
    function: Any = getattr(temporal, name)
    rows = temporal.row_statistics(LOGITS, LABELS)
    given, plain = function(rows, None), function(LOGITS, LABELS)
    for key, value in plain.items():
        torch.testing.assert_close(given[key], value, equal_nan=True)
    with pytest.raises(ValueError, match="preds: expected a tensor, got list"):
        function(LOGITS.tolist(), LABELS)


@pytest.mark.parametrize("name", ["success_rate", "progress", "path_length", "smoothness"])
def test_functions_of_episodes_refuse_lists(name: str) -> None:
    with pytest.raises(ValueError, match="expected a tensor, got list"):
        getattr(control, name)([[1.0]])


def test_one_condition_is_no_number_of_conditions() -> None:
    with pytest.raises(ValueError, match="condition: expected 1 ids"):
        RDM(conditions=3).update(torch.tensor([[1.0, 2.0, 4.0]]), 1)  # type: ignore[arg-type]


def test_ragged_point_sets_far_away() -> None:
    generator = torch.Generator().manual_seed(0)
    offset = torch.tensor([5e5, 5.4e6, 100.0], dtype=torch.float64)
    a, b = (offset + 0.1 * torch.rand(20, 3, generator=generator).double() for _ in range(2))
    big = offset + torch.rand(300, 3, generator=generator).double()
    together = chamfer_distance([a, big], [b, big])
    torch.testing.assert_close(together[:1], chamfer_distance([a], [b]), rtol=1e-9, atol=0)


@pytest.mark.parametrize("scale", [1e-14, 1e20])
def test_a_cosine_knows_no_scale(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(30, 4, generator=generator)
    gallery = queries + torch.randn(30, 4, generator=generator)
    values = []
    for factor in (1.0, scale):
        metric = RecallAtK(k=1)
        metric.update(factor * queries, factor * gallery)
        values.append(float(metric.compute()["recall_1"]))
    assert values[0] == values[1]


def test_large_integers_keep_their_differences() -> None:
    actions = torch.tensor([[[100000001], [100000002], [100000004]]])
    assert control.smoothness(actions).tolist() == [1.5]
    assert control.path_length(actions).tolist() == [3.0]


def test_groups_that_come_one_by_one() -> None:
    views = torch.randn(6, 3, 4, generator=torch.Generator().manual_seed(0))
    whole, single = LiDAR(), LiDAR()
    whole.update(views)
    for group in views.split(1):
        single(group)
    torch.testing.assert_close(single.compute(), whole.compute())


def test_padding_behind_the_length_is_not_looked_at() -> None:
    metric = SuccessRate()
    padded = torch.tensor([[1.0, torch.nan], [0.0, 1.0], [0.0, -1.0]])
    metric.update(padded, lengths=torch.tensor([1, 2, 1]))
    assert float(metric.compute()["rate"]) == pytest.approx(2 / 3)


def test_a_forward_that_fails_has_counted_nothing() -> None:
    suite = MetricSuite({
        "a": LayerResponse(measures=("response_avg", "response_std")),
        "a_x_response_std": TemporalAccuracy(),
    })  # fmt: skip
    with pytest.raises(ValueError, match="twice"):
        suite(activations={"x": torch.ones(2, 3, 4)}, preds=LOGITS, target=LABELS)
    assert suite["a"].update_count == 0
    with pytest.raises(ValueError, match="other: expected a MetricSuite"):
        suite.merge_state("x")  # type: ignore[arg-type]


def test_the_peak_lies_in_its_cell() -> None:
    rho = torch.zeros(2, 3)
    rho[1, 2] = 1.0
    [axis, _] = plot_temporal_rsa(rho, times=[0.0, 0.01, 0.02]).axes
    assert axis.get_xlim() == pytest.approx((-0.005, 0.025))
    assert axis.lines[0].get_xdata()[0] == 0.02
    with pytest.raises(ValueError, match="times: expected"):
        plot_temporal_rsa(rho, times=np.arange(2))


def test_an_entry_of_a_result_takes_what_its_metric_takes() -> None:
    suite = MetricSuite({"entry": TemporalAccuracy()["overall"], "other": Accuracy()})
    assert suite.inputs == {"mask": False, "preds": True, "target": True}
    suite.update(preds=LOGITS, target=LABELS)
    assert float(suite.compute()["entry"]) == 0.5
    with pytest.raises(ValueError, match="'msk', which no metric takes"):
        suite.update(preds=LOGITS, target=LABELS, msk=LABELS >= 0)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_of_another_kind_are_refused() -> None:
    quantised = torch.quantize_per_tensor(torch.ones(1, 2, 2), 0.1, 0, torch.quint8)
    with pytest.raises(ValueError, match="preds: expected a real dense tensor"):
        TemporalAccuracy().update(quantised, LABELS)
    ever, path = torch.tensor([True]), torch.zeros(1, 2, 3)
    with pytest.raises(ValueError, match="success: expected a tensor on the metric's device"):
        control.SPL().update(ever.to("meta"), path, path[:, 0])
