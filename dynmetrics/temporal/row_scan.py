"""One pass over the scores: everything that the metrics of single rows need of them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, describe, refuse
from dynmetrics.temporal.inputs import LAYOUTS, label_inputs, time_major
from dynmetrics.temporal.ranking import TIES, Chunk, chunks, ranks_in_chunk

_LOG2_E = 1.0 / math.log(2.0)


class RowStatistics(NamedTuple):
    """What `row_statistics` found in a batch of scores; every tensor is (B, T).

    A softmax of the scores is given by its logarithms, which neither underflow nor cancel: the
    confidence of the guess is `log_guess.exp()`, the loss of the label `-log_label`.
    """

    labels: Tensor
    """int64, -1 or another negative number where there is none or where the mask is False."""
    first_labels: Tensor
    """int64, the first label of the sample at every timestep, found without regard to the mask."""
    counted: Tensor
    """bool, where the mask is True."""
    rank: Tensor
    """int64, of the label among the classes, 0 for the best; only for labels from 0 to C - 1."""
    log_guess: Tensor
    """The logarithm of the largest probability."""
    log_label: Tensor
    """The logarithm of the label's probability; only for labels from 0 to C - 1."""
    log_first: Tensor
    """The logarithm of the first label's probability, likewise."""
    nonfinite: Tensor
    """bool, where a score of the row is NaN."""
    classes: int
    """C."""
    ties: str
    """Which of equal scores ranks first."""

    def hits(self, k: int = 1) -> Tensor:
        """Whether the label is among the k best, (B, T); False where there is none."""
        possible = (self.labels >= 0) & (self.labels < self.classes) & ~self.nonfinite
        return (self.rank < k) & possible


def row_statistics(
    preds: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    layout: str = "BTC",
    ties: str = "lowest_index",
) -> RowStatistics:
    """Rank and probabilities of the label in every row of scores, in one pass.

    Top-k accuracy for every k, the confidences, the calibration error, latencies and the loss all
    follow from a few numbers per row. To share them, compute them once and give them to `update` in
    the place of the scores, with None for the target; nothing is remembered behind your back, so
    nothing can be out of date. The scores are read in pieces that stay in a CPU's cache, and no
    second tensor of their size is made.

    Args:
        preds: scores, that is logits, with the axes of `layout`; half precision is read as float32.
        target: integer labels (B, T) or (B,), negative where there is none.
        mask: boolean (B, T) or (B,), True where a row counts.
        layout: "BTC", "BCT" or "TBC"; never guessed.
        ties: which of equal scores ranks first: "lowest_index" as argmax, "optimistic" for the
            label, "pessimistic" against it.

    Returns:
        `RowStatistics`. Where a row holds NaN, `nonfinite` is True and probabilities are NaN. They
        are also NaN where a row's largest score is infinite. Ranks equal those of a stable sort
        exactly, log-probabilities `torch.log_softmax` of the same precision.

    Raises:
        ValueError: for shapes or options that do not fit.

    Example:
        >>> import torch
        >>> from dynmetrics.temporal import TemporalAccuracy, TemporalConfidence
        >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
        >>> rows = row_statistics(logits, torch.tensor([0]))
        >>> rows.rank
        tensor([[0, 1]])
        >>> accuracy, confidence = TemporalAccuracy(), TemporalConfidence()
        >>> accuracy.update(rows, None)
        >>> confidence.update(rows, None)
        >>> confidence.compute()["guess"]
        tensor([0.8808, 0.7311], dtype=torch.float64)
    """
    check_choice("layout", layout, LAYOUTS)
    check_choice("ties", ties, TIES)
    scores = time_major(preds, layout)
    classes = scores.shape[-1]
    if classes == 1:
        raise refuse("preds", "two classes or more", describe(preds))
    labels, first, counted = label_inputs(target, mask, scores.shape[:2], scores.device)
    parts = [_scan(chunk, ties) for chunk in chunks(scores, labels, first)]
    rank, log_guess, log_label, log_first, nonfinite = (
        torch.cat(part).reshape(labels.shape) for part in zip(*parts, strict=True)
    )
    return RowStatistics(
        labels, first, counted, rank.to(torch.int64), log_guess, log_label, log_first, nonfinite,
        classes, ties,
    )  # fmt: skip


def _scan(chunk: Chunk, ties: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The numbers of every row of one chunk, (n,)."""
    values, (label, first), dim, _ = chunk
    rank = ranks_in_chunk(chunk, label, ties)
    top = values.amax(dim, keepdim=True)
    log_sum = _exponentials(chunk, top).sum(dim).log()
    log_label, log_first = (
        (values.gather(dim, index) - top).squeeze(dim) - log_sum for index in (label, first)
    )
    # An infinite maximum makes the sum NaN, and with it all that is said of the row.
    return rank, -log_sum, log_label, log_first, top.squeeze(dim).isnan()


def _exponentials(chunk: Chunk, top: Tensor) -> Tensor:
    """exp(values - top)."""
    if chunk.scratch is None:
        return (chunk.values - top).exp()
    # Torch vectorises exp2 better than exp, by a factor of four.
    return torch.sub(chunk.values, top, out=chunk.scratch).mul_(_LOG2_E).exp2_()


def rows_of(
    preds: Any, target: Any, mask: Any, *, layout: str, ties: str | None = "lowest_index"
) -> RowStatistics:
    """The statistics of a batch, or those that `preds` already are.

    `ties` is None for a metric that asks for no rank.
    """
    if not isinstance(preds, RowStatistics):
        return row_statistics(preds, target, mask, layout=layout, ties=ties or "lowest_index")
    for argument, value in (("target", target), ("mask", mask)):
        if value is not None:
            raise refuse(argument, "None beside row statistics, which hold it", describe(value))
    if ties is not None and preds.ties != ties:
        raise refuse("preds", f"row statistics with ties={ties!r}", f"ties={preds.ties!r}")
    return preds
