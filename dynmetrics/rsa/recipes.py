"""From signed correlations to percent of the explainable variance, by two recipes."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, describe, refuse
from dynmetrics.rsa.brain_data import BrainRDMs
from dynmetrics.rsa.ceilings import Ceiling, resembles_noise
from dynmetrics.rsa.comparison import COMPARISONS, NAN_POLICIES
from dynmetrics.rsa.target import Comparison, build_target
from dynmetrics.rsa.vectors import rdm_vectors, square

RECIPES = ("mean-rdm", "algonauts2019", "none")


def scores(subjects: Tensor, mean: Tensor, ceiling: Ceiling, recipe: str) -> dict[str, Tensor]:
    """Scores and ceilings: subjects (..., S), mean (...), ceiling (..., S) each; results (...)."""
    upper, lower = ceiling.upper.mean(-1), ceiling.lower.mean(-1)
    upper_r2 = ceiling.upper.square().mean(-1)
    r2 = subjects.square().mean(-1)
    by_mean = percent(mean.square(), upper)
    by_subject = percent(r2, upper_r2)
    chosen = {"mean-rdm": by_mean, "algonauts2019": by_subject, "none": 100 * r2}
    return {
        "score": chosen[recipe],
        "score_mean_rdm": by_mean,
        "score_algonauts2019": by_subject,
        "rho": subjects.mean(-1),
        "rho_mean_rdm": mean,
        "r2": r2,
        "ceiling_upper": upper,
        "ceiling_lower": lower,
        "ceiling_upper_r2": upper_r2,
        "ceiling_lower_r2": ceiling.lower.square().mean(-1),
    }


def percent(explained: Tensor, ceiling: Tensor) -> Tensor:
    """100 explained / ceiling; NaN unless the ceiling is positive."""
    return 100 * explained / torch.where(ceiling > 0, ceiling, torch.nan)


def over_window(found: Comparison) -> tuple[Tensor, Tensor, Ceiling]:
    """Correlations averaged over brain time within each subject, as the MEG track does.

    They are squared afterwards; squaring first would give another, larger number.
    """
    ceiling = Ceiling(found.ceiling.upper.mean(1), found.ceiling.lower.mean(1))
    return found.subjects.mean(1), found.mean.mean(), ceiling


def doubts(upper: Tensor, lower: Tensor, subjects: int, recipe: str) -> str:
    """What a reader of a score has to know of its ceilings; empty if nothing."""
    if recipe == "none":
        return ""
    if subjects == 1:
        return "one subject has no noise ceiling, so the score is NaN; read rho"
    if bool((upper <= 0).any()):
        return f"the upper noise ceiling {_least(upper)} is not positive, so the score is NaN"
    if bool(upper.isnan().any()):
        return "the noise ceiling is NaN, and so is the score"
    if any(
        resembles_noise(u, v, subjects) for u, v in zip(upper.ravel(), lower.ravel(), strict=True)
    ):
        return (
            f"noise ceilings {_least(lower)} (lower) and {_least(upper)} (upper) are about what "
            f"{subjects} subjects without any common signal would give; do not trust the score"
        )
    return ""


def _least(values: Tensor) -> str:
    return f"{float(values.min()):.3g}"


def algonauts_score(
    model_rdm: Tensor,
    subject_rdms: Tensor | BrainRDMs,
    recipe: str = "mean-rdm",
    *,
    comparison: str = "spearman",
    nan_policy: str = "error",
) -> Tensor:
    r"""Noise-normalised variance explained, in percent, of subjects' RDMs by a model's RDM.

    With :math:`\rho_s` the correlation with subject s, :math:`\rho_m` that with the mean RDM, and
    :math:`c_s` that of subject s with the mean RDM:

    - "mean-rdm", the written recipe of the challenge, :math:`100\,\rho_m^2 / \bar{c}`. The ceiling
      is not squared, so the mean RDM itself scores far more than 100.
    - "algonauts2019", what the challenge's own scorer computes,
      :math:`100\,\overline{\rho_s^2} / \overline{c_s^2}`. Quote this beside leaderboard numbers.
    - "none", :math:`100\,\overline{\rho_s^2}`.

    The recipes can differ several-fold. Neither is clipped: a model may pass 100, and since both
    square, a model that is the opposite of the brain scores as well as the brain. A model of
    shuffled conditions scores above 0.

    Args:
        model_rdm: (K, K), or its upper triangle (P,).
        subject_rdms: (S, K, K), (S, P), or (S, Tb, K, K), whose correlations are averaged over
            the timesteps within each subject before they are squared (the MEG track).
        recipe: one of the above.
        comparison: as in `compare_rdms`; the recipes are defined for "spearman".
        nan_policy: as in `compare_rdms`.

    Returns:
        (), float64. NaN, with a warning that says why, where the ceiling is not positive.

    Raises:
        ValueError: for RDMs that do not fit, and for NaN under "error".

    References:
        Cichy et al. (2019), arXiv:1905.05675. The ceilings equal the constants of its scorer.

    Example:
        >>> import torch
        >>> from dynmetrics.rsa import algonauts_score
        >>> subjects = torch.tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 4.0]])
        >>> algonauts_score(torch.tensor([1.0, 3.0, 2.0]), subjects, recipe="algonauts2019")
        tensor(25., dtype=torch.float64)
    """
    check_choice("recipe", recipe, RECIPES)
    check_choice("comparison", comparison, COMPARISONS)
    check_choice("nan_policy", nan_policy, NAN_POLICIES)
    model = rdm_vectors("model_rdm", model_rdm)
    brain = rdm_vectors("subject_rdms", subject_rdms)
    if model.ndim != 1:
        raise refuse("model_rdm", "one RDM", describe(model_rdm))
    if brain.ndim not in (2, 3) or brain.shape[-1] != model.shape[-1]:
        expected = f"RDMs (S, K, K) or (S, Tb, K, K) of {model.shape[-1]} pairs"
        raise refuse("subject_rdms", expected, describe(brain))
    if nan_policy == "error" and bool(model.isnan().any()):
        raise refuse("model_rdm", "no NaN (see nan_policy)", describe(model_rdm))
    brain = brain.unsqueeze(1) if brain.ndim == 2 else brain
    target = build_target(brain.to(model.device), comparison, nan_policy)
    found = target.compare(square(model).unsqueeze(0), leave_out=False)[0]
    subjects, mean, ceiling = over_window(found)
    result = scores(subjects, mean, ceiling, recipe)
    doubt = doubts(result["ceiling_upper"], result["ceiling_lower"], len(subjects), recipe)
    if doubt:
        warnings.warn(f"algonauts_score: {doubt}", UserWarning, stacklevel=2)
    return result["score"]
