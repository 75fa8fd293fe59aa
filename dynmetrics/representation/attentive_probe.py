"""AttentiveProbe: what a small attention layer can read out of frozen tokens."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import (
    check_choice,
    check_flag,
    check_fraction,
    check_positive_int,
    check_tensor,
    describe,
    refuse,
)
from dynmetrics.core.metric import Axes
from dynmetrics.core.rows import row_priorities
from dynmetrics.representation.attentive_model import (
    AttentiveClassifier,
    Training,
    logits_of,
    trained_classifier,
)
from dynmetrics.representation.features import check_number
from dynmetrics.representation.splits import (
    AVERAGES,
    Probe,
    Rows,
    SplitMetric,
    accuracy,
    check_split_options,
    checked_rows,
    finite_rows,
    held_out,
    trainable,
)


class AttentiveProbe(SplitMetric):
    """Accuracy of an attentive classifier trained on frozen tokens, as V-JEPA is evaluated.

    A learned query attends to the tokens, so that, unlike a linear probe on pooled features, it can
    tell which of them matter. `compute` trains it from its first weights, which takes a while.

    Keeps the tokens of both splits, 4 T D bytes a row in float32 and half of that in float16: with
    T = 196 and D = 768 that is 600 kB a row. `capacity` bounds the rows; `memory_bytes()` tells.

    Args:
        num_classes: the number of classes. A label not below it is left out of the train split, and
            wrong in the test split.
        epochs: passes over the train split.
        batch_size: rows in a step of training.
        lr: the largest learning rate of the one-cycle schedule.
        weight_decay: of AdamW.
        num_heads: attention heads; D must be a multiple of it.
        depth: 1, or as V-JEPA 2 has it, that many blocks, all but the last of self-attention.
        patience: stop when the loss on a held-out part of the train split has not fallen for so
            many epochs, and take the best weights.
        holdout: the share of the train split that `patience` is judged by.
        seed: of everything random: weights, order, held-out part.
        capacity: the most rows of either split on one rank; more are an error.
        average: the accuracy over all test rows, "micro", or its mean over classes, "macro".
        storage: the type in which rows are kept: "float32" or "float16".
        progress: show a progress bar on standard error.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `features` (N, T, D), `target` (N,), and `split`, "train" or "test", in any
    order. A negative label is none. Rows that are not finite are left out of the train split, and
    wrong in the test split.

    The rows are put in an order of their own before training, so that the result does not depend on
    the order, the batches and the ranks in which they came.

    Returns:
        A dict of tensors (): `score`, NaN as long as a split has no rows, `n_train`, `n_test`.

    Raises:
        ValueError: for options or shapes that do not fit, and for rows beyond `capacity`.

    References:
        Bardes et al., "Revisiting feature prediction for learning visual representations from
        video" (V-JEPA), 2024; V-JEPA 2, 2025. Architecture and schedule are those of torch_world
        `attentive_probe`; the value is that of a training run, and so agrees within noise.

    Example:
        >>> import torch
        >>> from dynmetrics.representation import AttentiveProbe
        >>> metric = AttentiveProbe(num_classes=2, num_heads=1, lr=0.01)
        >>> x = torch.eye(2).repeat(8, 1).unsqueeze(1)  # (N, T, D)
        >>> metric.update(x, torch.tensor([0, 1]).repeat(8), split="train")
        >>> metric.update(x[:4], torch.tensor([0, 1, 0, 1]), split="test")
        >>> metric.compute()["score"]
        tensor(1., dtype=torch.float64)
    """

    higher_is_better = True

    def __init__(
        self,
        *,
        num_classes: int,
        epochs: int = 20,
        batch_size: int = 256,
        lr: float = 1e-3,
        weight_decay: float = 0.01,
        num_heads: int = 8,
        depth: int = 1,
        patience: int | None = None,
        holdout: float = 0.1,
        seed: int = 0,
        capacity: int | None = None,
        average: str = "micro",
        storage: str = "float32",
        progress: bool = False,
        **kwargs: Any,
    ) -> None:
        counts = {"num_classes": num_classes, "epochs": epochs, "batch_size": batch_size}
        for name, value in {**counts, "num_heads": num_heads, "depth": depth}.items():
            check_positive_int(name, value)
        if patience is not None:
            check_positive_int("patience", patience)
        check_number("lr", lr, 0, excluded=True)
        check_number("weight_decay", weight_decay, 0)
        check_fraction("holdout", holdout)
        check_choice("average", average, AVERAGES)
        check_split_options(storage, capacity)
        check_flag("progress", progress)
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise refuse("seed", "an integer", describe(seed))
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.training_options = Training(epochs, batch_size, lr, weight_decay, patience, progress)
        self.num_heads = num_heads
        self.depth = depth
        self.holdout = holdout
        self.seed = seed
        self.average = average
        self.add_split("train", storage, axes=2, capacity=capacity)
        self.add_split("test", storage, axes=2, capacity=capacity)

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        return {"score": (), "n_train": (), "n_test": ()}

    def update(self, features: Tensor, target: Tensor, split: str) -> None:
        """Add rows of a split: features (N, T, D), target (N,)."""
        features, target = checked_rows(features, target, split, self.device, "NTD")
        if features.shape[2] % self.num_heads:
            expected = f"a width D that is a multiple of num_heads={self.num_heads}"
            raise refuse("features", expected, describe(features))
        self.keep(split, features, target)

    def compute(self) -> dict[str, Tensor]:
        """Train on the train split, and the accuracy over the test split."""
        train, test = self.fit_rows(), self.kept("test")
        score = torch.full((), torch.nan, dtype=torch.float64, device=self.device)
        if len(train.target) and len(test.target):
            generator = torch.Generator().manual_seed(self.seed)
            hits = self.predictions(train, test, generator) == test.target
            score = accuracy(hits & finite_rows(test), test.target, self.average)
        n_train = self.seen.new_tensor(len(train.target))
        return {
            "score": score,
            "n_train": n_train,
            "n_test": self.seen.new_tensor(len(test.target)),
        }

    def fit_rows(self) -> Rows:
        """The rows of the train split that can be trained on, in an order of their own."""
        train = trainable(self.kept("train"), self.num_classes)
        order = row_priorities(self.seed, train.features, train.target).sort().indices
        return Rows(train.features[order], train.target[order], train.ids[order])

    def predictions(self, train: Rows, test: Rows, generator: torch.Generator) -> Tensor:
        """The classes (M,) of the test rows."""
        held = held_out(train.features, train.target, self.holdout)
        options = self.training_options
        if options.patience is None or not bool(held.any()) or bool(held.all()):
            # Without a held-out part there is nothing to be patient about.
            held, options = torch.zeros_like(held), dataclasses.replace(options, patience=None)
        tokens = _detached(train.features)
        width = tokens.shape[2]

        def make() -> AttentiveClassifier:
            return AttentiveClassifier(width, self.num_classes, self.num_heads, self.depth)

        with torch.inference_mode(False), torch.enable_grad():
            model = trained_classifier(
                tokens, _detached(train.target), held.clone(), make, options, generator
            )
        queries = torch.where(finite_rows(test)[:, None, None], test.features, 0)
        return logits_of(model, queries, options.batch_size).argmax(1)


def _detached(values: Tensor) -> Tensor:
    """A copy that autograd may use, also of what was made in inference mode."""
    with torch.inference_mode(False):
        return values.clone()


def attentive_probe(
    train_x: Tensor,
    train_y: Tensor,
    test_x: Tensor,
    test_y: Tensor,
    epochs: int = 20,
    batch_size: int = 256,
    lr: float = 0.001,
    weight_decay: float = 0.01,
    num_heads: int = 8,
    generator: torch.Generator | None = None,
    **options: Any,
) -> Probe:
    """`AttentiveProbe` of two splits at once, with its predictions.

    Args:
        train_x: tokens (N, T, D).
        train_y: whole numbers (N,).
        test_x: tokens (M, T, D).
        test_y: whole numbers (M,).
        epochs: passes over the train split.
        batch_size: rows in a step of training.
        lr: the largest learning rate.
        weight_decay: of AdamW.
        num_heads: attention heads.
        generator: of all randomness; by default one with the seed 0.
        options: the others of `AttentiveProbe`; `num_classes` is by default what the labels show.

    Returns:
        `Probe(score, predictions)`, the predicted classes (M,).

    Example:
        >>> import torch
        >>> x = torch.eye(2).repeat(8, 1).unsqueeze(1)
        >>> y = torch.tensor([0, 1]).repeat(8)
        >>> attentive_probe(x, y, x[:2], y[:2], lr=0.01, num_heads=1)
        Probe(score=1.0, predictions=tensor([0, 1]))
    """
    check_tensor("train_x", train_x)
    check_tensor("train_y", train_y)
    check_tensor("test_y", test_y)
    if not len(train_y):
        raise refuse("train_x", "at least 1 row", describe(train_x))
    options = {"num_classes": max(int(train_y.max()) + 1, 1), **options}
    metric = AttentiveProbe(
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        weight_decay=weight_decay,
        num_heads=num_heads,
        sync_on_compute=False,
        **options,
    ).to(train_x.device)
    metric.update(train_x, train_y, split="train")
    metric.update(test_x, torch.zeros_like(test_y), split="test")
    generator = generator or torch.Generator().manual_seed(metric.seed)
    with torch.no_grad():
        rows, test = metric.fit_rows(), metric.kept("test")
        predictions = metric.predictions(rows, test, generator)
        hits = ((predictions == test_y) & finite_rows(test))[test_y >= 0]
        score = float(accuracy(hits, test_y[test_y >= 0], metric.average))
    return Probe(score, predictions)
