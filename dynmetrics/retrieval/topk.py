"""Top-k accuracy of a ranking of classes, honest about ties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import (
    check_choice,
    check_positive_int,
    check_tensor,
    describe,
    device_of,
    refuse,
    whole_numbers,
)
from dynmetrics.core.metric import Axes, Result, StreamingMetric
from dynmetrics.core.numerics import ratio
from dynmetrics.core.state import BY_DATA
from dynmetrics.retrieval.ranks import (
    TIES,
    Standing,
    hit_chance,
    standing_of_index,
    standing_of_positives,
)

AVERAGES = ("micro", "macro", "none")


class TopKAccuracy(StreamingMetric):
    r"""Share of rows whose label is among the k highest scores, as in zero-shot classification.

    A model that says the same for everything gets what chance gives it, k / C, and not whatever the
    sorting of equal scores makes of it: by default a tie counts with the chance that a random order
    would put the label among the first k.

    Args:
        k: one k, or several, which cost one pass.
        ties: "expected" over random orders, "optimistic" or "pessimistic" for the label, or
            "lowest_index" as argmax.
        average: "micro" over rows; "macro" over the classes that have rows; "none" gives each.
        num_classes: C, if it is to be checked.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `preds`, scores (N, C), and `target`, integer labels (N,), negative where there
    is none, or booleans (N, C) that mark several right classes (average "micro" only); rows without
    a right class do not count. A label of C or more, and a row with a NaN, is wrong; the first
    belongs to no class, so averages over classes leave it out, and `compute` says so.

    Returns:
        A tensor () for one k, or a dict `top1`, `top5`, ...; (C,) each for `average="none"`.
        Fractions in [0, 1]; NaN without rows.

    Raises:
        ValueError: for options or shapes that do not fit, and for k > C.

    References:
        torch_world `topk_accuracy` and scikit-learn `top_k_accuracy_score`, to 1e-9 without ties.

    Example:
        >>> import torch
        >>> from dynmetrics.retrieval import TopKAccuracy
        >>> metric = TopKAccuracy(k=(1, 2))
        >>> metric.update(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([1]))
        >>> metric.update(torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([2]))
        >>> {name: round(float(value), 4) for name, value in metric.compute().items()}
        {'top1': 0.1667, 'top2': 0.8333}
    """

    higher_is_better = True
    hits: Tensor
    n: Tensor
    strays: Tensor

    def __init__(
        self,
        *,
        k: int | Sequence[int] = 1,
        ties: str = "expected",
        average: str = "micro",
        num_classes: int | None = None,
        **kwargs: Any,
    ) -> None:
        ks = checked_ks(k)
        check_choice("ties", ties, TIES)
        check_choice("average", average, AVERAGES)
        if num_classes is not None:
            check_positive_int("num_classes", num_classes)
            check_largest_k(ks, num_classes)
        super().__init__(**kwargs)
        self.ks, self.several = ks, not isinstance(k, int)
        self.ties = ties
        self.average = average
        self.num_classes = num_classes
        size = num_classes if num_classes is not None else BY_DATA
        classes = () if average == "micro" else (size,)
        self.add_sum("hits", (len(ks), *classes))
        self.add_counts("n", classes)
        self.add_counts("strays")

    @property
    def axes(self) -> Axes:
        """The axis letters of the result."""
        letters = ("C",) if self.average == "none" else ()
        return {f"top{k}": letters for k in self.ks} if self.several else letters

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Count rows of scores (N, C) with their labels (N,) or (N, C)."""
        scores = checked_scores("preds", preds, self.ks)
        if self.num_classes not in (None, scores.shape[1]):
            raise refuse("preds", f"num_classes={self.num_classes} classes", f"{scores.shape[1]}")
        standing = standing_of(scores, target, self.ties)
        hits = torch.stack([hit_chance(standing, k, self.ties) for k in self.ks])
        if self.average == "micro":
            self.accumulate(hits=hits.sum(1), n=standing.valid.sum())
            return
        if target.dtype is torch.bool:
            raise refuse(
                "target", f"one label a row, for average={self.average!r}", describe(target)
            )
        if not len(scores):
            return
        classes = scores.shape[1]
        inside = standing.valid & (target < classes)
        index = whole_numbers("target", target).clamp(0, classes - 1)
        per_class = hits.new_zeros((len(self.ks), classes)).index_add(1, index, hits)
        n = torch.zeros(classes, dtype=torch.int64, device=scores.device)
        self.accumulate(
            hits=per_class,
            n=n.index_add(0, index, inside.to(torch.int64)),
            strays=(standing.valid & ~inside).sum(),
        )

    def compute(self) -> Result:
        """The accuracy over everything seen."""
        if int(self.strays):
            self.warn_once("strays", f"{int(self.strays)} labels of no class are left out")
        rates = ratio(self.hits, self.n)
        if self.average == "macro":
            rates = rates.nanmean(-1)
        if self.several:
            return {f"top{k}": rate for k, rate in zip(self.ks, rates, strict=True)}
        return rates[0]


def checked_ks(k: Any) -> tuple[int, ...]:
    """One k or several different ones, as a tuple."""
    ks = tuple(k) if isinstance(k, Sequence) and not isinstance(k, str) else (k,)
    for one in ks:
        check_positive_int("k", one)
    if not ks or len(set(ks)) < len(ks):
        raise refuse("k", "one k or several different ones", describe(k))
    return ks


def check_largest_k(ks: tuple[int, ...], candidates: int) -> None:
    """Refuse a k above the number of candidates, for which every model is right."""
    if max(ks) > candidates:
        raise refuse("k", f"at most the {candidates} candidates", f"{max(ks)}")


def checked_scores(argument: str, value: Any, ks: tuple[int, ...]) -> Tensor:
    """Scores (Q, C) in float32 or wider."""
    check_tensor(argument, value)
    if value.ndim != 2 or not value.is_floating_point():
        raise refuse(argument, "scores (Q, C)", describe(value))
    check_largest_k(ks, value.shape[1])
    scores: Tensor = value.float() if value.element_size() < 4 else value
    return scores


def standing_of(scores: Tensor, target: Any, ties: str) -> Standing:
    """The standing of the right candidates: indices (Q,) or booleans (Q, C)."""
    right = checked_target(target, len(scores), scores.shape[1], scores.device)
    if right.dtype is torch.bool:
        return standing_of_positives(scores, right, ties)
    return standing_of_index(scores, right, ties)


def checked_target(target: Any, queries: int, candidates: int, device: torch.device) -> Tensor:
    """The right candidates: indices (Q,) as int64, or booleans (Q, C)."""
    check_tensor("target", target, device)
    if target.dtype is torch.bool and target.shape == (queries, candidates):
        result: Tensor = target
        return result
    if target.shape != (queries,) or target.dtype is torch.bool:
        expected = f"indices {(queries,)} or booleans {(queries, candidates)}"
        raise refuse("target", expected, describe(target))
    return whole_numbers("target", target)


def topk_accuracy(logits: Tensor, labels: Tensor, k: int = 1, *, ties: str = "expected") -> float:
    """`TopKAccuracy` of one batch, as a number.

    Example:
        >>> import torch
        >>> topk_accuracy(torch.tensor([[3.0, 2.0, 1.0], [0.0, 0.0, 0.0]]), torch.tensor([0, 2]))
        0.6666666666666666
    """
    metric = TopKAccuracy(k=k, ties=ties, sync_on_compute=False).to(device_of("logits", logits))
    metric.update(logits, labels)
    value = metric.compute()
    assert isinstance(value, Tensor)
    return float(value)
