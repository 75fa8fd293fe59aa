"""BrainMetric: a pattern metric that holds brains to compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dynmetrics.core.checks import check_choice, describe, refuse
from dynmetrics.rsa.brain_data import BrainRDMs, as_brain
from dynmetrics.rsa.comparison import COMPARISONS, NAN_POLICIES
from dynmetrics.rsa.patterns import PatternMetric
from dynmetrics.rsa.recipes import RECIPES, doubts
from dynmetrics.rsa.target import build_target


class BrainMetric(PatternMetric):
    """Compares the RDMs of activations with brains, whose ceilings and ranks are made once.

    They follow the metric to another device, and never to another precision.
    """

    higher_is_better = True
    by_time = False
    """Whether brain time is an axis of the result, or is averaged over."""

    def __init__(
        self,
        *,
        brains: Mapping[str, Any],
        conditions: Any,
        comparison: str,
        recipe: str,
        nan_policy: str,
        **kwargs: Any,
    ) -> None:
        check_choice("comparison", comparison, COMPARISONS)
        check_choice("recipe", recipe, RECIPES)
        check_choice("nan_policy", nan_policy, NAN_POLICIES)
        chosen = {name: as_brain(name, brain, conditions) for name, brain in brains.items()}
        first = next(iter(chosen.values()))
        for name, brain in chosen.items():
            if brain.conditions != first.conditions:
                expected = "the same conditions in the same order for all (see `conditions`)"
                raise refuse(name, expected, describe(brain.conditions))
        super().__init__(conditions=first.conditions, **kwargs)
        self.comparison = comparison
        self.recipe = recipe
        self.nan_policy = nan_policy
        self.targets = {
            name: build_target(brain.vectors().to(self.device), comparison, nan_policy)
            for name, brain in chosen.items()
        }

    def _apply(  # type: ignore[override]
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True, **options: Any
    ) -> nn.Module:
        """Take the brains along to another device."""
        super()._apply(fn, recurse, **options)
        moved = {name: target.to(self.device) for name, target in self.targets.items()}
        self.__dict__["targets"] = moved
        return self

    def warn_of_ceilings(self) -> None:
        """Say once for each brain what a reader of scores against it has to know."""
        if self._of_one_batch or not int(self.counts.sum()):
            return
        for name, target in self.targets.items():
            bounds = [side if self.by_time else side.mean(1) for side in target.ceiling]
            upper, lower = (side.mean(0) for side in bounds)
            doubt = doubts(upper, lower, target.vectors.shape[0], self.recipe)
            if doubt:
                self.warn_once(f"ceiling of {name}", f"{name}: {doubt}")


def windowed(brain: Any, window: Any) -> BrainRDMs:
    """The brain between two times, both included; between two indices where it has no times."""
    whole: BrainRDMs = brain if isinstance(brain, BrainRDMs) else BrainRDMs(brain)
    if window is None:
        return whole
    try:
        start, stop = window
        low, high = float(start), float(stop)
    except (TypeError, ValueError):
        raise refuse("window", "a pair of times", describe(window)) from None
    if whole.rdms.ndim != 4:
        raise refuse("window", "None for a brain without time", describe(window))
    steps = whole.rdms.shape[1]
    times = torch.arange(steps) if whole.times is None else whole.times.cpu()
    inside = ((times >= low) & (times <= high)).nonzero().ravel()
    if not len(inside):
        expected = f"times between {float(times.min()):g} and {float(times.max()):g}"
        raise refuse("window", expected, describe(window))
    return BrainRDMs(whole.rdms[:, inside], whole.conditions, whole.name, times[inside])
