"""LinearProbe: what a linear map can read out of frozen features."""

from __future__ import annotations

from collections.abc import Sequence
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
from dynmetrics.core.scatter import PRODUCTS, batch_scatter, fold_scatter, scatter_parts
from dynmetrics.core.state import BY_DATA
from dynmetrics.representation.linear_classifier import Classifier, choose_classifier
from dynmetrics.representation.ridge import LinearMap, determination, fit_ridge
from dynmetrics.representation.splits import (
    AVERAGES,
    Probe,
    SplitMetric,
    accuracy,
    check_split_options,
    checked_ridges,
    checked_rows,
    checked_targets,
    finite_rows,
    held_out,
    storage_of,
    trainable,
)

TASKS = ("classification", "regression")
SOLVERS = ("lbfgs", "moments")


class LinearProbe(SplitMetric):
    """Test score of a linear map fitted to frozen features: linear evaluation.

    Regression keeps moments only, 8 (D + K)^2 bytes for each split, and is exact. Classification
    with `solver="lbfgs"`, multinomial logistic regression, keeps all rows, 4 D bytes each
    (`capacity` bounds them); `solver="moments"`, ridge regression to one-hot targets, a cheaper and
    slightly weaker classifier, keeps moments of the train split and rows of the test split.

    Features are standardised by the train split; those that are constant in it drop out.

    Args:
        task: "classification" of whole numbers, scored by accuracy, or "regression" of real
            numbers, scored by R2, averaged over targets.
        ridge: the weight of |w|^2 beside the mean loss; of several, the one that predicts a
            held-out part of the train split best, and then fits all of it.
        solver: of classification, "lbfgs" or "moments". Regression always is from moments.
        penalize_bias: in regression, also shrink the intercept by 1 / (1 + ridge), as torch_world
            does: targets far from 0 are then missed by a share of their mean.
        num_classes: the number of classes, which `solver="moments"` must know. A label not below it
            is never predicted: it is left out of the train split, and wrong in the test split.
        iterations: at most so many steps of L-BFGS.
        capacity: the most rows to keep of either split; more are an error.
        holdout: the share of the train split that several `ridge` are compared on. Rows are held
            out by what they hold, so that the order and the rank in which they come do not matter.
        average: the accuracy over all rows, "micro", or its mean over classes, "macro".
        storage: the type in which rows are kept: "float32", "float64" or "float16". L-BFGS reaches
            an objective within 1e-7 of the minimum, "float64" one within 1e-12.
        products: "float64", or "float32" for moments in half the time, with half the digits.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `features` (N, D), `target`, whole numbers (N,) or for a regression (N,) or
    (N, K), and `split`, "train" or "test", in any order. A negative label is none.

    Returns:
        A dict of tensors (): `score`, `n_train`, `n_test`, and `ridge`, the chosen one, if there
        are several. The score is NaN as long as a split has no rows, and for a regression on NaN.

    Raises:
        ValueError: for options or shapes that do not fit, and for rows beyond `capacity`.

    References:
        torch_world `linear_probe`; scikit-learn `LogisticRegression(C=1 / (2 N ridge))` and
        `Ridge(alpha=ridge N)` on the standardised features, the latter to 1e-9. Standard deviations
        are with N - 1.

    Example:
        >>> import torch
        >>> from dynmetrics.representation import LinearProbe
        >>> metric = LinearProbe()
        >>> x = torch.tensor([[0.0], [1.0], [4.0], [5.0]])
        >>> metric.update(x, torch.tensor([0, 0, 1, 1]), split="train")
        >>> metric.update(x + 0.5, torch.tensor([0, 0, 1, 0]), split="test")
        >>> {name: value.item() for name, value in metric.compute().items()}
        {'score': 0.75, 'n_train': 4, 'n_test': 4}
    """

    higher_is_better = True
    counts: Tensor
    fit_moments: Tensor
    held_moments: Tensor
    test_moments: Tensor

    def __init__(
        self,
        *,
        task: str = "classification",
        ridge: float | Sequence[float] = 1e-3,
        solver: str = "lbfgs",
        penalize_bias: bool = False,
        num_classes: int | None = None,
        iterations: int = 100,
        capacity: int | None = None,
        holdout: float = 0.1,
        average: str = "micro",
        storage: str = "float32",
        products: str = "float64",
        **kwargs: Any,
    ) -> None:
        check_choice("task", task, TASKS)
        check_choice("solver", solver, SOLVERS)
        check_flag("penalize_bias", penalize_bias)
        check_positive_int("iterations", iterations)
        check_fraction("holdout", holdout)
        check_choice("average", average, AVERAGES)
        check_split_options(storage, capacity)
        check_choice("products", products, PRODUCTS)
        ridges = checked_ridges(ridge)
        by_moments = task == "regression" or solver == "moments"
        if num_classes is not None:
            check_positive_int("num_classes", num_classes)
        elif task == "classification" and by_moments:
            raise refuse("num_classes", "the number of classes for solver='moments'", "None")
        super().__init__(**kwargs)
        self.task = task
        self.ridges = ridges
        self.by_moments = by_moments
        self.penalize_bias = penalize_bias
        self.num_classes = num_classes
        self.iterations = iterations
        self.holdout = holdout
        self.average = average
        self.products = products
        if by_moments:
            self.add_folded("fit_moments", (BY_DATA, BY_DATA), fold_scatter)
            self.add_folded("held_moments", (BY_DATA, BY_DATA), fold_scatter)
        else:
            self.add_split("train", storage, capacity=capacity)
        if task == "regression":
            self.add_folded("test_moments", (BY_DATA, BY_DATA), fold_scatter)
        else:
            self.add_split("test", storage, capacity=capacity)

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        names = ("score", "n_train", "n_test")
        return dict.fromkeys((*names, "ridge") if len(self.ridges) > 1 else names, ())

    def update(self, features: Tensor, target: Tensor, split: str) -> None:
        """Add rows of a split: features (N, D), target (N,) or, for a regression, (N, K)."""
        if self.task == "regression":
            features, target = checked_targets(features, target, split, self.device)
            everyone = torch.ones_like(target[:, 0], dtype=torch.bool)
            self._add_moments(features, target, everyone, split)
            return
        features, target = checked_rows(features, target, split, self.device)
        if split == "test" or not self.by_moments:
            self.keep(split, features, target)
            return
        assert self.num_classes is not None
        counted = (target >= 0) & (target < self.num_classes)
        classes = torch.arange(self.num_classes, device=target.device)
        one_hot = (target.unsqueeze(1) == classes).to(torch.float64)
        self._add_moments(features, one_hot, counted, split)

    def _add_moments(self, features: Tensor, target: Tensor, counted: Tensor, split: str) -> None:
        if not len(features):
            self.accumulate()
            return
        joint = torch.cat([features.to(torch.float64), target.to(torch.float64)], 1)
        everyone = self.task == "regression"
        parts = {split: None if everyone else counted}
        if split == "train":
            parts = {"fit": None if everyone else counted}
            if len(self.ridges) > 1:
                held = held_out(features, target, self.holdout)
                parts = {"fit": counted & ~held, "held": counted & held}
        moments = {
            f"{part}_moments": batch_scatter(joint, self.products, mask).to(self._moment_dtype)
            for part, mask in parts.items()
        }
        seen = self.seen.new_full((features.shape[1],), len(features))
        self.accumulate(seen=seen, **moments)

    @property
    def _moment_dtype(self) -> torch.dtype:
        return self.state_specs["fit_moments"].dtype

    def compute(self) -> dict[str, Tensor]:
        """The score of the test split."""
        n_train, ridge, model = self.fitted()
        score = torch.full((), torch.nan, dtype=torch.float64, device=self.device)
        if self.task == "classification":
            test = self.kept("test")
            if isinstance(model, Classifier) and len(test.target):
                score = self.rated(model(test.features))
            return self._result(score, n_train, len(test.target), ridge)
        test_moments = self.test_moments.to(torch.float64)
        if isinstance(model, LinearMap) and test_moments.numel():
            score = determination(test_moments, model).mean()
        return self._result(score, n_train, int(scatter_parts(test_moments)[0]), ridge)

    def rated(self, predictions: Tensor) -> Tensor:
        """The accuracy of the predictions (M,) for the rows of the test split."""
        test = self.kept("test")
        hits = (predictions == test.target) & finite_rows(test)
        return accuracy(hits, test.target, self.average)

    def fitted(self) -> tuple[int, float, Classifier | LinearMap | None]:
        """The rows of the train split, the penalty that suits them, and what was fitted to them."""
        if self.by_moments:
            n, ridge, linear = self._fitted_to_moments()
            classes = self.task == "classification"
            return n, ridge, Classifier.of_all(linear) if classes else linear
        train = trainable(self.kept("train"), self.num_classes)
        ridge, classifier = choose_classifier(train, self.ridges, self.iterations, self.holdout)
        return len(train.target), ridge, classifier

    def _fitted_to_moments(self) -> tuple[int, float, LinearMap | None]:
        fit, held = (getattr(self, f"{p}_moments").to(torch.float64) for p in ("fit", "held"))
        both = fold_scatter(fit, held) if held.numel() else fit
        n, width, ridge = int(scatter_parts(both)[0]), len(self.seen), self.ridges[0]
        if n < 2:
            return n, ridge, None
        if len(self.ridges) > 1 and min(int(scatter_parts(part)[0]) for part in (fit, held)) >= 2:
            maps = fit_ridge(fit, width, self.ridges, self.penalize_bias)
            scores = [float(determination(held, linear).mean()) for linear in maps]
            ridge = self.ridges[scores.index(max(scores))]
        return n, ridge, fit_ridge(both, width, [ridge], self.penalize_bias)[0]

    def _result(self, score: Tensor, n_train: int, n_test: int, ridge: float) -> dict[str, Tensor]:
        counts = {"n_train": self.seen.new_tensor(n_train), "n_test": self.seen.new_tensor(n_test)}
        chosen = {"ridge": score.new_tensor(ridge)} if len(self.ridges) > 1 else {}
        return {"score": score, **counts, **chosen}


def linear_probe(
    train_x: Tensor,
    train_y: Tensor,
    test_x: Tensor,
    test_y: Tensor,
    ridge: float | Sequence[float] = 0.001,
    iterations: int = 100,
    **options: Any,
) -> Probe:
    """`LinearProbe` of two splits at once, with its predictions.

    Args:
        train_x: features (N, D).
        train_y: whole numbers (N,) for classes, or real numbers (N,) or (N, K) for a regression.
        test_x: features (M, D).
        test_y: what the probe should say of them.
        ridge: the weight of |w|^2, or several to choose from.
        iterations: at most so many steps of L-BFGS.
        options: the others of `LinearProbe`, but for `task`, which the type of `train_y` says.

    Returns:
        `Probe(score, predictions)`: classes (M,), or real numbers of the shape of `test_y`.

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
        >>> probe = linear_probe(x, 2 * x[:, 0] + 7, x, 2 * x[:, 0] + 7, ridge=0.0)
        >>> print(f"{probe.score:.3f}", [round(value, 3) for value in probe.predictions.tolist()])
        1.000 [7.0, 9.0, 11.0, 13.0]
    """
    check_tensor("train_x", train_x)
    check_tensor("train_y", train_y)
    task = TASKS[train_y.is_floating_point()]
    options = {"storage": storage_of(train_x), **options}
    metric = LinearProbe(
        task=task, ridge=ridge, iterations=iterations, sync_on_compute=False, **options
    ).to(train_x.device)
    metric.update(train_x, train_y, split="train")
    metric.update(test_x, test_y, split="test")
    with torch.no_grad():
        _, _, model = metric.fitted()
        if model is None:
            raise refuse("train_x", "at least 2 rows", describe(train_x))
        predictions = model(test_x)
        if isinstance(model, Classifier):
            kept = predictions[test_y >= 0]
            return Probe(float(metric.rated(kept)), predictions)
        score = float(determination(metric.test_moments, model).mean())
    return Probe(score, predictions.reshape(test_y.shape))
