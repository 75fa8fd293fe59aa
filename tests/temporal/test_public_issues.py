"""Faults that users of other libraries reported, one test each, with the right value."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from dynmetrics.temporal import (
    Accuracy,
    TemporalAccuracy,
    TemporalConfidence,
    TemporalRecall,
    accuracy,
    confidences,
    temporal_accuracy,
    temporal_confusion,
    temporal_recall,
)


def guesses(*classes: int, num_classes: int) -> torch.Tensor:
    """Scores (B, C) whose largest is that of the class."""
    return torch.nn.functional.one_hot(torch.tensor(classes), num_classes).double()


def test_burn_5577_padded_samples_do_not_weigh() -> None:
    metric = Accuracy()
    metric.update(guesses(0, *[0] * 9, num_classes=2), torch.tensor([0, *[-1] * 9]))
    metric.update(guesses(*[0] * 10, num_classes=2), torch.tensor([1] * 10))
    assert float(metric.compute()) == pytest.approx(1 / 11)
    metric.update(guesses(*[0] * 4, num_classes=2), torch.tensor([-1] * 4))
    assert float(metric.compute()) == pytest.approx(1 / 11)


@pytest.mark.parametrize(
    ("preds", "target", "num_classes", "right"),
    [
        ([0, 1, 2, 0, 1, 2], [0, 1, 2, 0, 1, 2], 3, 1.0),
        ([0, 1], [1, 1], 2, 0.5),
        ([0, 1, 2], [1, 1, 2], 3, 0.75),
    ],
)
def test_torchmetrics_1691_ignored_class_that_is_predicted(
    preds: list[int], target: list[int], num_classes: int, right: float
) -> None:
    labels = torch.tensor(target)
    scores = guesses(*preds, num_classes=num_classes)
    value = accuracy(scores, labels, labels != 0, average="macro")
    assert float(value) == right


def test_torchmetrics_2441_recall_with_an_ignored_class() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    scores = guesses(0, 0, 0, 1, num_classes=2)[:, None]
    result = temporal_recall(scores, labels, labels != 0, average="macro")
    assert float(result["overall"]) == 0.5


@pytest.mark.parametrize("k", [1, 2])
def test_torchmetrics_295_1664_2418_absent_class_in_macro_top_k(k: int) -> None:
    scores = torch.tensor([[0.9, 0.5, 0.1]] * 3)
    labels = torch.tensor([0, 0, 2])
    assert float(accuracy(scores, labels, average="macro", top_k=k)) == 0.5
    zero = accuracy(scores, labels, average="macro", top_k=k, absent_classes="zero")
    assert float(zero) == pytest.approx(1 / 3)


def test_torchmetrics_1017_2535_3043_rows_are_not_averaged_but_pooled() -> None:
    """The recall of a class counts where the class occurs; a row without it has none."""
    rows = torch.tensor([[0, 0, 0, 0], [0, 0, 1, 1]])
    by_class = TemporalRecall(num_classes=2, average="none")
    by_class.update(rows, rows)
    assert by_class.compute()["overall"].tolist() == [1.0, 1.0]
    metric = Accuracy()
    metric.update(torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 4, dtype=torch.long))
    metric.update(torch.tensor([[1, 1, 1, 1]]), torch.tensor([[0, -1, -1, -1]]))
    assert float(metric.compute()) == 4 / 5


def test_torchmetrics_1556_3068_top_k_with_ignored_targets() -> None:
    scores = torch.tensor(
        [[[0.1, 0.7, 0.2]], [[0.5, 0.3, 0.2]], [[0.2, 0.3, 0.5]], [[0.3, 0.4, 0.3]]]
    )
    labels = torch.tensor([[1], [1], [2], [-100]])
    result = temporal_accuracy(scores, labels, top_k=(1, 2, 3))
    assert result["valid"].tolist() == [3]
    assert float(result["overall_top1"]) == pytest.approx(2 / 3)
    assert float(result["overall_top2"]) == 1.0
    assert float(result["overall_top3"]) == 1.0
    in_bct = temporal_accuracy(scores.permute(0, 2, 1), labels, top_k=(1, 2, 3), layout="BCT")
    assert float(in_bct["overall_top1"]) == pytest.approx(2 / 3)


def test_torchmetrics_304_1393_61_every_negative_label_is_masked() -> None:
    scores = guesses(0, 1, 1, num_classes=2)
    assert float(accuracy(scores, torch.tensor([0, 1, -2]))) == 1.0
    assert float(accuracy(scores, torch.tensor([0, 1, -1]))) == 1.0


def test_torchmetrics_1604_2195_2329_3269_scores_are_never_guessed_to_be_logits() -> None:
    scores, target = torch.tensor([[0.4], [0.6]]), torch.tensor([[1], [1]])
    alone = accuracy(scores, target, mode="multilabel", threshold=0.5)
    outlier = torch.tensor([[7.0]]), torch.tensor([[1]])
    metric = Accuracy(mode="multilabel")
    metric.update(scores, target)
    metric.update(*outlier)
    together = accuracy(
        torch.cat([scores, outlier[0]]), torch.cat([target, outlier[1]]), mode="multilabel"
    )
    assert float(alone) == 0.5
    assert float(metric.compute()) == float(together) == pytest.approx(2 / 3)
    # Logits are told by the threshold: a probability above one half is a logit above 0.
    assert float(accuracy(scores, target, mode="multilabel", threshold=0.0)) == 1.0


def test_torchmetrics_1367_float_targets() -> None:
    scores = guesses(0, 1, 2, num_classes=3)
    assert float(accuracy(scores, torch.tensor([0.0, 1.0, 2.0]))) == 1.0
    with pytest.raises(ValueError, match="target: expected whole numbers"):
        accuracy(scores, torch.tensor([0.5, 1.0, 2.0]))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_torchmetrics_1970_labels_of_any_integer_type(dtype: torch.dtype) -> None:
    assert float(accuracy(guesses(0, 1, num_classes=2), torch.tensor([0, 1], dtype=dtype))) == 1.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_torchmetrics_1228_half_precision_with_masked_labels(dtype: torch.dtype) -> None:
    scores = torch.randn(2, 5, 3).to(dtype)
    labels = torch.tensor([[0, 1, -100], [2, 3, 4]])
    ours = temporal_accuracy(scores, labels, layout="BCT", top_k=(1, 3))
    exact = temporal_accuracy(scores.double(), labels, layout="BCT", top_k=(1, 3))
    assert ours["valid"].tolist() == [2, 2, 1]
    torch.testing.assert_close(ours["top3"], exact["top3"], equal_nan=True)


def test_ignite_3593_as_many_timesteps_as_classes() -> None:
    scores = torch.zeros(1, 3, 3)
    scores[..., 1] = 1
    labels = torch.ones(1, 3, dtype=torch.long)
    assert temporal_accuracy(scores, labels)["accuracy"].tolist() == [1.0, 1.0, 1.0]
    # Taken at its word, not guessed: read as (B, C, T) every score of a timestep is the same.
    assert temporal_accuracy(scores, labels, layout="BCT")["accuracy"].tolist() == [0.0, 0.0, 0.0]


def test_lightning_7370_9528_12863_vectors_stay_vectors_and_name_their_axes() -> None:
    metric = TemporalAccuracy(average="none", num_classes=3)
    metric.update(torch.randn(4, 2, 3), torch.randint(0, 3, (4, 2)))
    result = metric.compute()
    assert isinstance(metric.axes, dict)
    assert metric.axes["accuracy"] == ("C", "T")
    assert result["accuracy"].shape == (3, 2)


def test_torchmetrics_2170_2463_337_states_of_unequal_lengths_join() -> None:
    long, short, empty = TemporalAccuracy(), TemporalAccuracy(), TemporalAccuracy()
    long.update(guesses(1, 1, 1, 1, num_classes=2)[None], torch.tensor([1]))
    short.update(guesses(0, 0, 0, num_classes=2)[None], torch.tensor([1]))
    for other in (short, empty):
        long.merge_state(other)
    assert long.compute()["accuracy"].tolist() == [0.5, 0.5, 0.5, 1.0]
    empty.merge_state(long)
    assert empty.compute()["valid"].tolist() == [2, 2, 2, 1]


def test_lightning_2924_19816_the_epoch_is_not_the_mean_of_batches() -> None:
    metric = TemporalAccuracy()
    batches = [
        metric(guesses(1, 1, num_classes=2)[:, None], torch.tensor([1, 1])),
        metric(guesses(0, num_classes=2)[:, None], torch.tensor([1])),
    ]
    assert np.mean([float(batch["overall"]) for batch in batches]) == 0.5
    assert float(metric.compute()["overall"]) == pytest.approx(2 / 3)


def test_swift_10049_a_negative_code_is_never_compared_with_a_class() -> None:
    labels = torch.tensor([[-100, 1, -100]])
    scores = guesses(1, 1, 1, num_classes=2)[None]
    assert float(temporal_accuracy(scores, labels)["overall"]) == 1.0
    assert temporal_confusion(scores, labels).sum((1, 2)).tolist() == [0, 1, 0]
    assert confidences(scores, labels)["label"][0, 0] == 0


@pytest.mark.parametrize(
    ("row", "label"), [([torch.nan] * 3, 0), ([0.9, torch.nan, 0.1], 1), ([0.9, torch.nan, 0.1], 0)]
)
def test_rows_with_nan_are_never_right_and_counted(row: list[float], label: int) -> None:
    result = temporal_accuracy(torch.tensor([[row]]), torch.tensor([label]), top_k=(1, 3))
    assert result["valid"].tolist() == result["nonfinite"].tolist() == [1]
    assert float(result["overall_top1"]) == float(result["overall_top3"]) == 0.0


def test_a_label_per_sample_holds_at_every_timestep() -> None:
    scores = torch.randn(3, 4, 5)
    labels = torch.tensor([0, 3, -1])
    held = labels[:, None].expand(3, 4)
    for layout in ("BTC", "BCT", "TBC"):
        moved = scores.permute(["BTC".index(axis) for axis in layout])
        ours = temporal_accuracy(moved, labels, layout=layout)
        torch.testing.assert_close(ours, temporal_accuracy(scores, held), equal_nan=True)


def test_the_number_of_timesteps_may_change() -> None:
    accuracy_curve, confidence = TemporalAccuracy(), TemporalConfidence()
    for steps in (2, 5, 3):
        scores = guesses(*[0] * steps, num_classes=2)[None]
        accuracy_curve.update(scores, torch.tensor([0]))
        confidence.update(scores, torch.tensor([0]))
    assert accuracy_curve.compute()["valid"].tolist() == [3, 3, 2, 1, 1]
    assert confidence.compute()["valid"].tolist() == [3, 3, 2, 1, 1]


def test_out_of_range_labels_are_said_and_never_vanish() -> None:
    metric = Accuracy(num_classes=3)
    metric.update(guesses(0, 1, 2, num_classes=3), torch.tensor([50, 57, 2]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert float(metric.compute()) == pytest.approx(1 / 3)
    assert "2 labels were not below" in str(caught[0].message)
