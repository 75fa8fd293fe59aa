"""How well a labelling of frames finds the segments of a video."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dynmetrics.core.checks import check_tensor, describe, device_of, refuse, whole_numbers
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.numerics import ratio


class SegmentScores(StreamingMetric):
    r"""The three scores of action segmentation: frames, order of segments, and overlap.

    `mof` is the share of right frames; it forgives a labelling that flickers. `edit` compares the
    order of segments alone, 1 - Levenshtein distance / the longer of the two, and punishes
    flickering. `f1_50` asks in addition that a segment overlaps one of the truth by half: a
    predicted segment is right if it overlaps its best match of the same class with at least 50 %
    intersection over union, and if no other has found that match before. The three are pooled as in
    the usual protocol: frames over all videos, edit scores averaged over videos, segments over all.

    Segments are found on the host: every update copies the labels of its frames there once.

    Args:
        background: a class whose segments do not count, or several; its frames do count for `mof`.
        overlaps: least intersections over union; 0.1 gives `f1_10`.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `preds` and `target`, class indices (T,) of one video or (B, T) of several, and
    `mask`, boolean of the same shape, True where a frame counts. Frames without a label, negative,
    are left out as well, such as those that pad short videos.

    Returns:
        A dict of fractions in [0, 1]: `mof`, `edit`, and an `f1_..` for every overlap. NaN without
        any frame, or any segment. Videos without a segment on either side have no edit score.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        Lea et al. (2017); Farha and Gall (2019), MS-TCN, met to 1e-9 (as fractions, not percent).

    Example:
        >>> import torch
        >>> from dynmetrics.temporal import SegmentScores
        >>> metric = SegmentScores()
        >>> metric.update(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 0, 1]))
        >>> metric.update(torch.tensor([2, 2]), torch.tensor([2, 2]))
        >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
        {'mof': 0.833, 'edit': 1.0, 'f1_10': 1.0, 'f1_25': 1.0, 'f1_50': 1.0}
    """

    higher_is_better = True
    frames: Tensor
    segments: Tensor
    edit: Tensor
    videos: Tensor

    def __init__(
        self,
        *,
        background: int | Sequence[int] | None = None,
        overlaps: Sequence[float] = (0.1, 0.25, 0.5),
        **kwargs: Any,
    ) -> None:
        self_background = _checked_background(background)
        overlaps = _checked_overlaps(overlaps)
        super().__init__(**kwargs)
        self.background = self_background
        self.overlaps = overlaps
        self.add_counts("frames", (2,))
        self.add_counts("segments", (len(overlaps), 3))
        self.add_sum("edit")
        self.add_counts("videos")

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        return dict.fromkeys(("mof", "edit", *self._names()), ())

    def update(self, preds: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Add videos: class indices (T,) or (B, T), mask of the same shape."""
        check_tensor("preds", preds, self.device)
        videos = frames_of_videos(preds, target, mask)
        counts = [video_counts(*video, self.background, self.overlaps) for video in videos]
        device = self.device
        frames = [(count.right, count.frames) for count in counts]
        edits = [count.edit for count in counts if count.edit is not None]
        segments = torch.tensor([count.segments for count in counts], dtype=torch.int64)
        self.accumulate(
            frames=torch.tensor(frames, dtype=torch.int64).reshape(-1, 2).sum(0).to(device),
            segments=segments.reshape(-1, len(self.overlaps), 3).sum(0).to(device),
            edit=torch.tensor(sum(edits), dtype=torch.float64, device=device),
            videos=torch.tensor(len(edits), device=device),
        )

    def compute(self) -> dict[str, Tensor]:
        """The scores over everything seen."""
        right, frames = self.frames
        found, wrong, missed = self.segments.unbind(-1)
        scores = ratio(2 * found, 2 * found + wrong + missed)
        return {
            "mof": ratio(right, frames),
            "edit": ratio(self.edit, self.videos),
            **dict(zip(self._names(), scores, strict=True)),
        }

    def _names(self) -> list[str]:
        return [f"f1_{100 * overlap:02.0f}" for overlap in self.overlaps]


class Segment(NamedTuple):
    """Frames start, ..., stop - 1 of one class."""

    label: int
    start: int
    stop: int


class VideoCounts(NamedTuple):
    """What one video adds."""

    right: int
    frames: int
    segments: list[tuple[int, int, int]]
    """For every overlap: found, wrong and missed segments."""
    edit: float | None
    """The edit score; None if neither labelling has a segment."""


def frames_of_videos(preds: Any, target: Any, mask: Any) -> list[tuple[list[int], list[int]]]:
    """Guesses and labels of the frames that count, of every video; reads the device."""
    check_tensor("preds", preds)
    check_tensor("target", target, preds.device)
    if preds.ndim not in (1, 2) or preds.shape != target.shape:
        raise refuse("target", "the shape (T,) or (B, T) of preds", describe(target))
    guesses, labels = whole_numbers("preds", preds), whole_numbers("target", target)
    counted = labels >= 0
    if mask is not None:
        check_tensor("mask", mask, preds.device)
        if mask.shape != preds.shape or mask.dtype is not torch.bool:
            raise refuse("mask", "a boolean tensor of the shape of preds", describe(mask))
        counted = counted & mask
    table = torch.stack([guesses, labels, counted.to(torch.int64)])
    if preds.ndim == 1:
        table = table.unsqueeze(1)
    videos = []
    for guess, label, there in zip(*table.tolist(), strict=True):
        kept = [t for t in range(len(there)) if there[t]]
        videos.append(([guess[t] for t in kept], [label[t] for t in kept]))
    return videos


def video_counts(
    guesses: list[int],
    labels: list[int],
    background: tuple[int, ...] = (),
    overlaps: Sequence[float] = (0.1, 0.25, 0.5),
) -> VideoCounts:
    """Right frames, found segments and edit score of one video."""
    right = sum(guess == label for guess, label in zip(guesses, labels, strict=True))
    predicted, true = segments_of(guesses, background), segments_of(labels, background)
    segments = [matched_segments(predicted, true, overlap) for overlap in overlaps]
    longest = max(len(predicted), len(true))
    edit = None
    if longest:
        order = [s.label for s in predicted], [s.label for s in true]
        edit = 1 - edit_distance(*order) / longest
    return VideoCounts(right, len(labels), segments, edit)


def segments_of(labels: Sequence[int], background: tuple[int, ...] = ()) -> list[Segment]:
    """The runs of equal labels, without those of the background."""
    starts = [t for t in range(len(labels)) if t == 0 or labels[t] != labels[t - 1]]
    stops = [*starts, len(labels)][1:]
    segments = [Segment(labels[a], a, b) for a, b in zip(starts, stops, strict=True)]
    return [segment for segment in segments if segment.label not in background]


def matched_segments(
    predicted: Sequence[Segment], true: Sequence[Segment], overlap: float
) -> tuple[int, int, int]:
    """Found, wrong and missed segments; every true one can be found once."""
    found: set[int] = set()
    for segment in predicted:
        shares = [intersection_over_union(segment, other) for other in true]
        best = max(range(len(true)), key=lambda i: shares[i], default=None)
        if best is not None and shares[best] >= overlap:
            found.add(best)
    return len(found), len(predicted) - len(found), len(true) - len(found)


def intersection_over_union(one: Segment, other: Segment) -> float:
    """The common frames as a share of the span of both; 0 for different classes."""
    common = min(one.stop, other.stop) - max(one.start, other.start)
    if one.label != other.label or common <= 0:
        return 0.0
    return common / (max(one.stop, other.stop) - min(one.start, other.start))


def edit_distance(one: Sequence[int], other: Sequence[int]) -> int:
    """The fewest insertions, deletions and replacements between two sequences (Levenshtein)."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        previous, row = row, [i]
        for j, b in enumerate(other, start=1):
            row.append(min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a != b)))
    return row[-1]


def _checked_background(background: Any) -> tuple[int, ...]:
    classes = () if background is None else background
    chosen = tuple(classes) if isinstance(classes, Sequence) else (classes,)
    if not all(isinstance(c, int) and not isinstance(c, bool) for c in chosen):
        raise refuse("background", "a class, several, or None", describe(background))
    return chosen


def _checked_overlaps(overlaps: Any) -> tuple[float, ...]:
    chosen = tuple(overlaps) if isinstance(overlaps, Sequence) else ()
    numbers = all(isinstance(o, (int, float)) and 0 < o <= 1 for o in chosen)
    if not chosen or not numbers or len({round(100 * o) for o in chosen}) < len(chosen):
        raise refuse("overlaps", "different fractions above 0, at most 1", describe(overlaps))
    return chosen


def segment_scores(
    preds: Tensor, target: Tensor, mask: Tensor | None = None, **options: Any
) -> dict[str, Tensor]:
    """`SegmentScores` of one video or batch: the same inputs, options and result.

    Example:
        >>> import torch
        >>> scores = segment_scores(torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1]))
        >>> scores["edit"], scores["f1_50"]
        (tensor(0.5000, dtype=torch.float64), tensor(0.6667, dtype=torch.float64))
    """
    metric = SegmentScores(sync_on_compute=False, **options).to(device_of("preds", preds))
    metric.update(preds, target, mask)
    return metric.compute()
