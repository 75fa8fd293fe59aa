"""KNNAccuracy: whether inputs of one class lie near each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import (
    check_choice,
    check_flag,
    check_positive_int,
    check_tensor,
    describe,
    refuse,
    whole_numbers,
)
from dynmetrics.core.exchange import Exchange, HomeExchange, NoExchange
from dynmetrics.core.metric import Axes
from dynmetrics.core.sync import Shares
from dynmetrics.representation.distances import nearest_by_distance
from dynmetrics.representation.features import check_number
from dynmetrics.representation.neighbours import METRICS, Frame, joined, nearest
from dynmetrics.representation.splits import (
    AVERAGES,
    Probe,
    Rows,
    SplitMetric,
    accuracy,
    check_split_options,
    checked_rows,
    finite_rows,
    storage_of,
    trainable,
)
from dynmetrics.representation.votes import WEIGHTS, Verdict, neighbour_weights, vote

_NOWHERE = torch.iinfo(torch.int64).max


class KNNAccuracy(SplitMetric):
    """Accuracy of a vote of the k nearest train features: a reading that needs no training.

    Keeps the features of both splits, 4 D bytes a row in float32 and 2 D in float16, which costs no
    accuracy. `capacity` bounds the train split, the bank, and `memory_bytes()` tells.

    Args:
        k: the neighbours that vote, or all of the bank if it has fewer.
        temperature: of the weights; the smaller, the more the nearest count.
        center: subtract the mean train feature first, so that a component which all inputs share
            does not dominate the cosine.
        num_classes: the number of classes. A label not below it is left out of the bank, and wrong
            in the test split. By default there are as many as the largest label of the bank shows.
        metric: "cosine", "euclidean" or "dot"; a zero vector has the cosine 0 to everything.
        weights: "exp", exp(similarity / temperature); "uniform"; or "inverse",
            1 / (distance + temperature).
        capacity: the most rows of the bank on one rank.
        overflow: what more rows do: "error"; "ring" keeps the latest; "reservoir" keeps a random
            sample, the same whatever the order, batches and ranks, and as large as one bank. The
            accuracy falls with the bank, so compare banks of equal `n_train` only.
        leave_one_out: rows of the bank with the `sample_id` of a test row do not vote on it.
            Without a test split the bank is tested against itself.
        average: the accuracy over all test rows, "micro", or its mean over classes, "macro".
        top_k: also report how often the right class is among so many.
        storage: the type in which rows are kept: "float32", "float16" or "float64".
        seed: of the reservoir.
        gather_limit: up to so many rows of both splits are gathered on every rank. Of more, the
            smaller split travels, and every rank searches its share of the other; also the states
            inside `synchronised()` and `sync()` are that share then. A reservoir is gathered.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `features` (N, D), `target` (N,), `split`, "train" or "test", in any order, and,
    to leave one out, `sample_id` (N,), whole numbers. A negative label is none.

    Similarities are compared in float32. Of equally near rows the earlier one comes first, rank by
    rank, and of classes with equal votes the lower one.

    Returns:
        A dict of tensors (): `score`, NaN without test rows or without a bank, `n_train`, the rows
        of the bank, `n_test`, and with `top_k=5` an entry `top5`.

    Raises:
        ValueError: for options or shapes that do not fit, and for rows beyond `capacity`.

    References:
        Wu et al., "Unsupervised feature learning via non-parametric instance discrimination", CVPR
        2018; DINO. Equal to torch_world `knn_accuracy`, but for low temperatures, where that
        overflows.

    Example:
        >>> import torch
        >>> from dynmetrics.representation import KNNAccuracy
        >>> metric = KNNAccuracy(k=1)
        >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
        >>> metric.update(x, torch.tensor([0, 0, 1]), split="train")
        >>> metric.update(x + 0.1, torch.tensor([0, 1, 1]), split="test")
        >>> {name: round(value.item(), 4) for name, value in metric.compute().items()}
        {'score': 0.6667, 'n_train': 3, 'n_test': 3}
    """

    higher_is_better = True
    test_target: list[Tensor]
    _shares: Shares | None = None

    def __init__(
        self,
        *,
        k: int = 20,
        temperature: float = 0.07,
        center: bool = False,
        num_classes: int | None = None,
        metric: str = "cosine",
        weights: str = "exp",
        capacity: int | None = None,
        overflow: str = "error",
        leave_one_out: bool = False,
        average: str = "micro",
        top_k: int | None = None,
        storage: str = "float32",
        seed: int = 0,
        gather_limit: int = 1 << 16,
        **kwargs: Any,
    ) -> None:
        check_positive_int("k", k)
        check_positive_int("gather_limit", gather_limit)
        check_number("temperature", temperature, 0, excluded=True)
        check_flag("center", center)
        check_choice("metric", metric, METRICS)
        check_choice("weights", weights, WEIGHTS)
        check_flag("leave_one_out", leave_one_out)
        check_choice("average", average, AVERAGES)
        check_split_options(storage, capacity, overflow)
        for name, value in (("num_classes", num_classes), ("top_k", top_k)):
            if value is not None:
                check_positive_int(name, value)
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise refuse("seed", "an integer", describe(seed))
        if weights == "inverse" and metric == "dot":
            raise refuse("weights", "'exp' or 'uniform' for metric='dot'", repr(weights))
        super().__init__(**kwargs)
        self.k = k
        self.temperature = temperature
        self.center = center
        self.num_classes = num_classes
        self.metric = metric
        self.weights = weights
        self.leave_one_out = leave_one_out
        self.average = average
        self.top_k = top_k
        self.gather_limit = gather_limit
        self.add_split("train", storage, capacity=capacity, overflow=overflow, seed=seed)
        self.add_split("test", storage)

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        names = ("score", "n_train", "n_test")
        return dict.fromkeys((*names, f"top{self.top_k}") if self.top_k else names, ())

    def update(
        self, features: Tensor, target: Tensor, split: str, sample_id: Tensor | None = None
    ) -> None:
        """Add rows of a split: features (N, D), target (N,), sample_id (N,)."""
        features, target = checked_rows(features, target, split, self.device)
        if self.leave_one_out:
            check_tensor("sample_id", sample_id, self.device)
            assert sample_id is not None
            if sample_id.shape != target.shape:
                raise refuse("sample_id", f"the shape {tuple(target.shape)}", describe(sample_id))
            sample_id = whole_numbers("sample_id", sample_id)
        self.keep(split, features, target, sample_id if self.leave_one_out else None)

    def rows_that_stay(self, sizes: Mapping[str, Sequence[int]]) -> list[str]:
        """The larger split, if both together are too many to gather: the smaller one travels."""
        train, test = sum(sizes["train_target"]), sum(sizes["test_target"])
        if train + test <= self.gather_limit or not test or "train_priority" in sizes:
            return []
        side = "train" if train >= test else "test"
        return [name for name in sizes if name.startswith(side)]

    def compute(self) -> dict[str, Tensor]:
        """The accuracy over the test split."""
        bank, test = self._splits()
        verdict = self._verdict(bank, test)
        ranks = torch.cat(self._of("test").gather_rows(verdict.rank))
        target = torch.cat(self._of("test").gather_rows(test.target))
        n_train = self._of("train").reduce(self.seen.new_tensor(len(bank.target)), "sum")
        scores = {"score": 1, **({f"top{self.top_k}": self.top_k} if self.top_k else {})}
        values = {
            name: accuracy(ranks < places, target, self.average) for name, places in scores.items()
        }
        if not int(n_train) or not len(target):
            values = {name: torch.full_like(value, torch.nan) for name, value in values.items()}
        counts = {"n_train": n_train, "n_test": self.seen.new_tensor(len(target))}
        return {"score": values.pop("score"), **counts, **values}

    def _of(self, split: str) -> Exchange:
        """How to reach the rows of a split: those of all ranks are here, unless they stayed."""
        shares = self._shares
        if shares is None or f"{split}_target" not in shares.names:
            return NoExchange()
        return HomeExchange(shares.exchange, self.device)

    def _splits(self) -> tuple[Rows, Rows]:
        """The bank, without rows that cannot vote, and the test rows."""
        bank, test = self.kept("train"), self.kept("test")
        if self.leave_one_out and self._shares is None and not self.test_target:
            test = bank
        return trainable(bank, self.num_classes), test

    def _verdict(self, bank: Rows, test: Rows) -> Verdict:
        """What the bank says of the test rows."""
        ranks = self._of("train")
        sizes = torch.stack(ranks.gather(self.seen.new_tensor(len(bank.target))))
        total, width = int(sizes.sum()), len(self.seen)
        if not total:
            return Verdict(torch.zeros_like(test.target), torch.zeros_like(test.target))
        finite = finite_rows(test)
        rows = bank.features.reshape(-1, width)
        queries = torch.where(finite.unsqueeze(1), test.features, 0).reshape(-1, width)
        frame = Frame.of(rows, queries, self.metric, self.center, total, ranks)
        first, k = int(sizes[: ranks.rank].sum()), min(self.k, total)
        ids = (bank.ids, test.ids) if self.leave_one_out else (None, None)
        if self.metric == "euclidean":
            keys, unit = nearest_by_distance(rows, queries, k, frame, first, *ids)
        else:
            keys, unit = nearest(rows, queries, k, self.metric, frame, first, *ids)
        keys, labels = joined(keys, bank.target, first, ranks)
        weights = neighbour_weights(keys, self.metric, self.weights, self.temperature, unit)
        highest = bank.target.amax() if len(bank.target) else self.seen.new_tensor(0)
        classes = self.num_classes or int(ranks.reduce(highest, "max")) + 1
        verdict = vote(weights, labels, test.target, classes)
        # No vote at all is no prediction.
        heard = finite & (weights.sum(1) > 0)
        return Verdict(verdict.predictions, torch.where(heard, verdict.rank, _NOWHERE))


def knn_accuracy(
    train_x: Tensor,
    train_y: Tensor,
    test_x: Tensor,
    test_y: Tensor,
    k: int = 20,
    temperature: float = 0.07,
    center: bool = False,
    **options: Any,
) -> Probe:
    """`KNNAccuracy` of two splits at once, with its predictions.

    Args:
        train_x: features (N, D), N >= 1.
        train_y: whole numbers (N,).
        test_x: features (M, D).
        test_y: whole numbers (M,).
        k: the neighbours that vote.
        temperature: of their weights.
        center: subtract the mean train feature first.
        options: the others of `KNNAccuracy`, but for `leave_one_out`.

    Returns:
        `Probe(score, predictions)`, the predicted classes (M,).

    Example:
        >>> import torch
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> knn_accuracy(x, torch.tensor([0, 1]), x + 0.1, torch.tensor([0, 1]), k=1)
        Probe(score=1.0, predictions=tensor([0, 1]))
    """
    check_tensor("train_x", train_x)
    options = {"storage": storage_of(train_x), **options}
    metric = KNNAccuracy(
        k=k, temperature=temperature, center=center, sync_on_compute=False, **options
    ).to(train_x.device)
    metric.update(train_x, train_y, split="train")
    # A row without a label is predicted all the same.
    metric.update(test_x, torch.zeros_like(test_y), split="test")
    with torch.no_grad():
        bank, test = metric._splits()
        if not len(bank.target):
            raise refuse("train_x", "at least 1 labelled row that is finite", describe(train_x))
        test = Rows(test.features, whole_numbers("test_y", test_y), test.ids)
        verdict = metric._verdict(bank, test)
        labelled = test.target >= 0
        hits = (verdict.rank < 1)[labelled]
        score = float(accuracy(hits, test.target[labelled], metric.average))
    return Probe(score, verdict.predictions)
