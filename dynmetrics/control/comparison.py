"""Is one policy better than another? Counts, an interval, a p-value, and an honest verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dynmetrics.control.intervals import wilson_interval
from dynmetrics.control.success import checked_success
from dynmetrics.core.checks import check_fraction, check_tensor, describe, refuse
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.numerics import normal_quantile, ratio


class PolicyComparison(StreamingMetric):
    r"""Compares the success of two policies on the same episodes, seed by seed.

    Only episodes on which the policies differ speak: `only_a` and `only_b`. The p-value is
    McNemar's mid-p, for the exact one is too cautious (0.036 where 0.05 is asked for); it stands
    beside it. `verdict` says in words what follows, and can say that there were too few episodes.

    Args:
        confidence: the probability with which the interval covers the true difference; the verdict
            calls a difference found at p below 1 - confidence.
        margin: the smallest difference of rates that matters to you; for the verdict.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `success_a` and `success_b` (N,), boolean or 0 and 1: episode i of both started
    alike.

    Returns:
        A dict: `difference` (), rate of a minus rate of b, from -1 to 1; `low` and `high`,
        Newcombe's paired interval; `p_value`; `n`, `only_a`, `only_b`, `both` and `neither`; and
        `p_exact`. Without episodes the difference is NaN, the interval [-1, 1] and p is 1.

    Raises:
        ValueError: for shapes or values that do not fit.

    References:
        McNemar (1947); Fagerland, Lydersen and Laake, "The McNemar test for binary matched-pairs
        data", 2013, for mid-p; Newcombe (1998), paired method 10. The exact p-value is that of
        statsmodels to 1e-9.

    Example:
        >>> import torch
        >>> from dynmetrics.control import PolicyComparison
        >>> metric = PolicyComparison()
        >>> metric.update(torch.tensor([True] * 6), torch.tensor([False] * 6))
        >>> metric.update(torch.tensor([True] * 4), torch.tensor([True] * 4))
        >>> float(metric.compute()["p_exact"])
        0.03125
        >>> metric.verdict()
        'a is better'
    """

    higher_is_better = None
    counts: Tensor

    def __init__(self, *, confidence: float = 0.95, margin: float = 0.1, **kwargs: Any) -> None:
        check_fraction("confidence", confidence)
        check_fraction("margin", margin)
        super().__init__(**kwargs)
        self.confidence = confidence
        self.margin = margin
        self.add_counts("counts", (4,))

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        names = ("difference", "low", "high", "p_value", "n", "only_a", "only_b", "both", "neither")
        return dict.fromkeys((*names, "p_exact"), ())

    def update(self, success_a: Tensor, success_b: Tensor) -> None:
        """Count paired episodes, (N,) each."""
        check_tensor("success_a", success_a, self.device)
        check_tensor("success_b", success_b, self.device)
        a, b = checked_success(success_a) == 1, checked_success(success_b) == 1
        if a.ndim != 1:
            raise refuse("success_a", "the shape (N,)", describe(success_a))
        if a.shape != b.shape:
            raise refuse("success_b", f"episodes paired with {tuple(a.shape)}", describe(success_b))
        self.accumulate(counts=torch.stack([a & ~b, b & ~a, a & b, ~a & ~b]).sum(1))

    def compute(self) -> dict[str, Tensor]:
        """The comparison over all episodes seen."""
        only_a, only_b, both, neither = self.counts
        n = self.counts.sum()
        exact, middle = mcnemar(only_a, only_b)
        low, high = paired_interval([int(count) for count in self.counts], self.confidence)
        return {
            "difference": ratio(only_a - only_b, n),
            "low": n.new_tensor(low, dtype=torch.float64),
            "high": n.new_tensor(high, dtype=torch.float64),
            "p_value": middle,
            "n": n,
            "only_a": only_a,
            "only_b": only_b,
            "both": both,
            "neither": neither,
            "p_exact": exact,
        }

    def verdict(self, results: Mapping[str, Tensor] | None = None) -> str:
        """What the numbers allow to say, of `compute`'s results or those given.

        "a is better" or "b is better" if p is below 1 - confidence; else "no difference found" if
        the interval excludes differences of `margin` and more, and "underpowered" if it does not:
        more episodes could still show one.
        """
        results = self.compute() if results is None else results
        difference, p_value = float(results["difference"]), float(results["p_value"])
        if p_value < 1 - self.confidence:
            return "a is better" if difference > 0 else "b is better"
        largest = max(abs(float(results["low"])), abs(float(results["high"])))
        return "no difference found" if largest < self.margin else "underpowered"


def mcnemar(only_a: Tensor, only_b: Tensor) -> tuple[Tensor, Tensor]:
    """McNemar's two-sided p-values, exact and mid-p, from the discordant counts."""
    from scipy.special import betainc

    a, b = int(only_a), int(only_b)
    n, least = a + b, min(a, b)
    if n == 0:
        one = only_a.new_ones((), dtype=torch.float64)
        return one, one
    below = 1.0 if least == n else float(betainc(n - least, least + 1, 0.5))
    log_mass = math.lgamma(n + 1) - math.lgamma(least + 1) - math.lgamma(n - least + 1)
    mass = math.exp(log_mass - n * math.log(2))
    exact = min(1.0, 2 * below)
    middle = 1.0 if a == b else min(1.0, 2 * below - mass)
    return (
        only_a.new_tensor(exact, dtype=torch.float64),
        only_a.new_tensor(middle, dtype=torch.float64),
    )


def paired_interval(counts: Sequence[int], confidence: float) -> tuple[float, float]:
    """Newcombe's interval of the difference of paired rates (1998, method 10).

    `counts` are the episodes of only a, only b, both and neither.
    """
    only_a, only_b, both, neither = counts
    n = only_a + only_b + both + neither
    if n == 0:
        return -1.0, 1.0
    rate_a, rate_b = (both + only_a) / n, (both + only_b) / n
    low_a, high_a = map(float, wilson_interval(both + only_a, n, confidence))
    low_b, high_b = map(float, wilson_interval(both + only_b, n, confidence))
    product = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
    phi = 0.0
    if product:
        covariance = float(both * neither - only_a * only_b)
        # Newcombe's continuity correction, for positive association only.
        covariance = max(covariance - n / 2, 0.0) if covariance > 0 else covariance
        phi = covariance / math.sqrt(product)
    difference = rate_a - rate_b
    return (
        max(-1.0, difference - _spread(rate_a - low_a, high_b - rate_b, phi)),
        min(1.0, difference + _spread(high_a - rate_a, rate_b - low_b, phi)),
    )


def _spread(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))


def required_episodes(p1: float, p2: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """How many episodes each of two policies needs for a difference of rates to be found.

    Args:
        p1: the success rate of the first policy.
        p2: that of the second.
        power: the chance of finding the difference.
        alpha: the level of the two-sided test.

    Returns:
        Episodes for each policy, if both run different ones: 2 (z(1 - alpha / 2) + z(power))^2 /
        h^2 for the effect h = 2 asin(sqrt(p1)) - 2 asin(sqrt(p2)), rounded up, as fewer would not
        reach the power.

    Raises:
        ValueError: for rates outside [0, 1] or equal, and for power and alpha outside (0, 1).

    References:
        Cohen's arcsine effect size, as statsmodels `NormalIndPower`.

    Example:
        >>> required_episodes(0.5, 0.6)
        388
    """
    check_fraction("power", power)
    check_fraction("alpha", alpha)
    for argument, rate in (("p1", p1), ("p2", p2)):
        if not 0 <= rate <= 1:
            raise refuse(argument, "a rate from 0 to 1", describe(rate))
    if p1 == p2:
        raise refuse("p2", "another rate than p1", describe(p2))
    effect = 2 * math.asin(math.sqrt(p1)) - 2 * math.asin(math.sqrt(p2))
    quantiles = normal_quantile(1 - alpha) + normal_quantile(2 * power - 1)
    return math.ceil(2 * (quantiles / effect) ** 2)
