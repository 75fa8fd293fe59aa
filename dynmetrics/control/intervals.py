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
        The bounds: numbers for numbers, else float64 tensors.

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
        device = k.device if isinstance(k, Tensor) else None
        return wilson_bounds(
            torch.as_tensor(k, device=device), torch.as_tensor(n, device=device), confidence
        )
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
