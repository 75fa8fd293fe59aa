"""SegmentScores under the laws, and against the golden values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from dynmetrics.core import StreamingMetric
from dynmetrics.temporal import SegmentScores, segment_scores
from dynmetrics.temporal.segments import edit_distance, matched_segments, segments_of
from tests.contract import Batch, MetricContract, assert_same
from tests.golden_cases import ROUTES, feed, temporal_case
from tests.reference import segments as definition
from tests.temporal.batches import refused


def videos(seed: int = 0) -> list[Batch]:
    """Videos of few, long runs, with unlabelled frames; one batch is empty, one all masked."""
    rng = np.random.default_rng(seed)
    batches: list[Batch] = []
    for b, t in ((3, 30), (1, 17), (0, 5), (4, 40), (2, 1)):
        target = np.repeat(rng.integers(-1, 4, (b, t)), 5, axis=1)[:, :t]
        preds = np.where(rng.random((b, t)) < 0.8, target.clip(0), rng.integers(0, 4, (b, t)))
        batches.append({"preds": torch.tensor(preds), "target": torch.tensor(target), "mask": None})
    batches[3]["mask"] = torch.tensor(rng.random((4, 40)) < 0.9)
    batches[4]["mask"] = torch.zeros(2, 1, dtype=torch.bool)
    return batches


class TestSegments(MetricContract):
    options: ClassVar[dict[str, Any]] = {}
    optout: ClassVar[dict[str, str]] = {
        "update_never_waits_for_the_device": "segments are found on the host, as is said",
        "on_cuda": "segments are found on the host, as is said",
        "kernel_compiles_in_one_graph": "lists of segments, no tensors",
    }

    def make(self) -> StreamingMetric:
        return SegmentScores(**self.options)

    def batches(self, seed: int = 0) -> list[Batch]:
        return videos(seed)

    def reference(self, batches: list[Batch]) -> Any:
        arrays = [
            (
                b["preds"].numpy(),
                b["target"].numpy(),
                None if b["mask"] is None else b["mask"].numpy(),
            )
            for b in batches
        ]
        return definition.segment_scores(arrays, **self.options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        alike = {"preds": torch.tensor([1, 1]), "target": torch.tensor([1, 1])}
        return [(SegmentScores(), SegmentScores(background=0), alike)]

    def bad_inputs(self) -> list[Batch]:
        labels = torch.zeros(2, 3, dtype=torch.long)
        return [
            {"preds": labels, "target": labels[0]},
            {"preds": labels[None], "target": labels[None]},
            {"preds": labels + 0.5, "target": labels},
            {"preds": labels, "target": labels.numpy()},
            {"preds": labels, "target": labels, "mask": labels},
            {"preds": labels, "target": labels, "mask": labels[0] > 0},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return refused(
            SegmentScores, {"background": "no"}, {"background": 1.0}, {"overlaps": ()},
            {"overlaps": (0.0,)}, {"overlaps": (1.5,)}, {"overlaps": (0.5, 0.5)}, {"overlaps": 0.5},
        )  # fmt: skip

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        raise AssertionError("opted out")


class TestSegmentsWithoutBackground(TestSegments):
    options: ClassVar[dict[str, Any]] = {"background": (0, 2), "overlaps": (0.3, 0.75)}


GOLDEN = temporal_case("segmentation__basic")
settings = pytest.mark.parametrize(
    ("key", "background"), [("no_background", None), ("background_0", 0)]
)


def golden_videos() -> list[tuple[Tensor, ...]]:
    """The videos in one batch, padded with frames without a label."""
    pairs = [
        (torch.tensor(v["prediction"]), torch.tensor(v["target"])) for v in GOLDEN.inputs["videos"]
    ]
    longest = max(len(target) for _, target in pairs)
    padded = [
        [torch.nn.functional.pad(x, (0, longest - len(x)), value=-1) for x in pair]
        for pair in pairs
    ]
    return [(torch.stack([p for p, _ in padded]), torch.stack([t for _, t in padded]))]


def check_scores(result: dict[str, Any], key: str) -> None:
    expected = GOLDEN.expected[key]
    GOLDEN.check(100 * result["mof"], expected["mof_percent"])
    GOLDEN.check(100 * result["edit"], expected["edit_mean_percent"])
    for overlap, value in expected["f1_percent"].items():
        GOLDEN.check(100 * result[f"f1_{round(100 * float(overlap))}"], value)


@settings
@pytest.mark.parametrize("route", ROUTES)
def test_golden_scores(key: str, background: int | None, route: str) -> None:
    metric = feed(partial(SegmentScores, background=background), golden_videos(), route)
    check_scores(metric.compute(), key)
    counts = torch.as_tensor(metric.metric_state["segments"])
    assert counts.tolist() == list(GOLDEN.expected[key]["tp_fp_fn"].values())


@settings
def test_golden_scores_of_the_function(key: str, background: int | None) -> None:
    [(preds, target)] = golden_videos()
    check_scores(segment_scores(preds, target, background=background), key)
    for i, edit in enumerate(GOLDEN.expected[key]["edit_per_video"]):
        video = segment_scores(preds[i], target[i], background=background)
        GOLDEN.check(100 * video["edit"], edit)
    chosen = () if background is None else (background,)
    arrays = [(preds.numpy(), target.numpy())]
    check_scores(definition.segment_scores(arrays, chosen), key)


def test_truth_without_segments_raises_nothing() -> None:
    """Where nothing but background is left in the truth, every predicted segment is wrong."""
    result = segment_scores(torch.tensor([1, 1, 0]), torch.tensor([0, 0, 0]), background=0)
    assert float(result["f1_10"]) == 0.0
    assert float(result["edit"]) == 0.0
    both = segment_scores(torch.tensor([0, 0]), torch.tensor([0, 0]), background=0)
    assert float(both["mof"]) == 1.0
    assert both["f1_10"].isnan()
    assert both["edit"].isnan()


def test_a_true_segment_is_found_once() -> None:
    predicted = segments_of([1, 1, 0, 1, 1])
    true = segments_of([1, 1, 1, 1, 1])
    assert matched_segments(predicted, true, 0.25) == (1, 2, 0)


@pytest.mark.parametrize(
    ("one", "other", "steps"),
    [([], [], 0), ([1, 2, 3], [], 3), ([1, 2, 3], [2, 3], 1), ([1, 2], [2, 1], 2)],
)
def test_edit_distance(one: list[int], other: list[int], steps: int) -> None:
    assert edit_distance(one, other) == steps == definition.distance(tuple(one), tuple(other))


def test_random_videos_against_the_definition() -> None:
    for seed in range(20):
        batches = videos(seed)
        metric = SegmentScores(background=1)
        for batch in batches:
            metric.update(**batch)
        arrays = [(b["preds"].numpy(), b["target"].numpy(), b["mask"]) for b in batches]
        assert_same(metric.compute(), definition.segment_scores(arrays, (1,)), 1e-12)
