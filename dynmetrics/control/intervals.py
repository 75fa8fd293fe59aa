"""Confidence intervals of a proportion."""

from __future__ import annotations

import torch
from torch import Tensor

from dynmetrics.core.checks import check_fraction, describe, refuse
from dynmetrics.core.numerics import normal_quantile, ratio, wilson_bounds

INTERVALS = ("wilson", "wilsoncc", "exact", "jeffreys", "agresti-coull")


def wilson_interval(
    k: float | Tensor, n: float | Tensor, confidence: float = 0.95
) -> tuple[float, float] | tuple[Tensor, Tensor]:
    """Wilson's score interval of k successes in n trials, without continuity correction.

    It stays inside [0, 1], is exactly 0 or 1 at the edges, and covers well from a few trials on.
    n = 0 gives [0, 1]: nothing is known.

    Args:
        k: successes, a number or a tensor.
        n: trials, likewise.
        confidence: the probability of covering the true rate, between 0 and 1.

    Returns:
        The bounds: numbers for numbers, else float64 tensors, NaN where k is not from 0 to n.

    Raises:
        ValueError: if numbers do not satisfy 0 <= k <= n, or for a confidence outside (0, 1).

    References:
        Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 1927.
        Equal to statsmodels `proportion_confint(method="wilson")` to 1e-9.

    Example:
        >>> low, high = wilson_interval(8, 16)
        >>> print(f"{low:.3f} {high:.3f}")
        0.280 0.720
    """
    check_fraction("confidence", confidence)
    if isinstance(k, Tensor) or isinstance(n, Tensor):
        device = next(value.device for value in (k, n) if isinstance(value, Tensor))
        k, n = torch.as_tensor(k, device=device), torch.as_tensor(n, device=device)
        low, high = wilson_bounds(k, n, confidence)
        possible = (k >= 0) & (k <= n)
        return low.where(possible, torch.nan), high.where(possible, torch.nan)
    if not 0 <= k <= n:
        raise refuse("k", f"a number from 0 to n = {n}", describe(k))
    low, high = wilson_bounds(torch.tensor(k), torch.tensor(n), confidence)
    return float(low), float(high)


def proportion_bounds(
    k: Tensor, n: Tensor, confidence: float, interval: str
) -> tuple[Tensor, Tensor]:
    """Bounds of the rate k / n, elementwise in float64; [0, 1] at n = 0.

    "wilson", and "wilsoncc" with continuity correction; "exact" is Clopper and Pearson's, never
    below the nominal coverage; "jeffreys" has equal tails; "agresti-coull" is the adjusted Wald.
    """
    if interval == "wilson":
        return wilson_bounds(k, n, confidence)
    k, n = k.to(torch.float64), n.to(torch.float64)
    if interval == "wilsoncc":
        low, high = _wilson_corrected(k, n, confidence)
    elif interval == "agresti-coull":
        low, high = _agresti_coull(k, n, confidence)
    else:
        low, high = _beta_quantiles(k, n, confidence, shift=0.5 if interval == "jeffreys" else 0.0)
    low = low.clamp(0, 1).masked_fill(k == 0, 0.0)
    high = high.clamp(0, 1).masked_fill(k == n, 1.0)
    return low, high


def _wilson_corrected(k: Tensor, n: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    """Newcombe (1998), method 4."""
    z = normal_quantile(confidence)
    p, q = ratio(k, n), ratio(n - k, n)
    centre, scale = 2 * k + z * z, 2 * (n + z * z)
    below = z * torch.sqrt((z * z - 2 - 1 / n + 4 * p * (n * q + 1)).clamp(min=0))
    above = z * torch.sqrt((z * z + 2 - 1 / n + 4 * p * (n * q - 1)).clamp(min=0))
    return (centre - 1 - below) / scale, (centre + 1 + above) / scale


def _agresti_coull(k: Tensor, n: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    z = normal_quantile(confidence)
    trials = n + z * z
    p = (k + z * z / 2) / trials
    spread = z * torch.sqrt(p * (1 - p) / trials)
    return p - spread, p + spread


def _beta_quantiles(k: Tensor, n: Tensor, confidence: float, shift: float) -> tuple[Tensor, Tensor]:
    """Quantiles of the beta distribution, which torch lacks."""
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    success, failure = k.cpu().numpy(), (n - k).cpu().numpy()
    other = 1 - shift
    low = betaincinv(success + shift, failure + other, tail)
    high = betaincinv(success + other, failure + shift, 1 - tail)
    return torch.as_tensor(low, device=k.device), torch.as_tensor(high, device=k.device)


def mean_bounds(mean: Tensor, error: Tensor, n: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    """Student's interval of means with the standard error `error`; infinite for n < 2."""
    from scipy.special import stdtrit

    quantile = stdtrit((n - 1).clamp(min=1).cpu().double().numpy(), 0.5 + confidence / 2)
    spread = torch.as_tensor(quantile, device=mean.device) * error
    spread = torch.where(n < 2, torch.inf, spread)
    return mean - spread, mean + spread


def newcombe_interval(
    k1: float, n1: float, k2: float, n2: float, confidence: float = 0.95
) -> tuple[float, float]:
    """Newcombe's interval of the difference k1 / n1 - k2 / n2 of two independent groups.

    Built from the Wilson interval of each rate; it never leaves [-1, 1] and is right where a rate
    is 0 or 1. Use it for two policies that did not run the same episodes.

    Args:
        k1: successes of the first group.
        n1: its trials; without any, its rate may be anything from 0 to 1.
        k2: successes of the second group.
        n2: its trials.
        confidence: the probability of covering the true difference.

    Returns:
        The bounds.

    Raises:
        ValueError: unless 0 <= k <= n for both, or for a confidence outside (0, 1).

    References:
        Newcombe, "Interval estimation for the difference between independent proportions", Stat.
        Med. 1998, method 10. Equal to statsmodels `confint_proportions_2indep(method="newcomb")`
        to 1e-9.

    Example:
        >>> low, high = newcombe_interval(56, 70, 48, 80)
        >>> print(f"{low:.4f} {high:.4f}")
        0.0524 0.3339
    """
    low1, high1 = map(float, wilson_interval(k1, n1, confidence))
    low2, high2 = map(float, wilson_interval(k2, n2, confidence))
    if not n1 or not n2:
        return low1 - high2, high1 - low2
    p1, p2 = k1 / n1, k2 / n2
    below = ((p1 - low1) ** 2 + (high2 - p2) ** 2) ** 0.5
    above = ((high1 - p1) ** 2 + (p2 - low2) ** 2) ** 0.5
    return max(-1.0, p1 - p2 - below), min(1.0, p1 - p2 + above)
