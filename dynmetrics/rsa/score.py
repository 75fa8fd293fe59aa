"""RSA: how well a network's representation explains a brain's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import describe, refuse
from dynmetrics.rsa.brain_data import BrainRDMs
from dynmetrics.rsa.brain_metric import BrainMetric
from dynmetrics.rsa.ceilings import Ceiling
from dynmetrics.rsa.projection import check_seed
from dynmetrics.rsa.recipes import over_window, scores


class RSA(BrainMetric):
    r"""Representational similarity of a network and a brain, beside what the noise permits.

    The network's RDM, from mean patterns of conditions as in `RDM`, is compared with the RDM of
    each subject and with the subjects' mean. `score` is the percentage of the explainable variance
    by `recipe`; see `algonauts_score` for the definitions and `noise_ceiling` for the ceilings.
    Both recipes are in every result, and they can differ several-fold: quote `score_algonauts2019`
    beside the challenge's leaderboard, `score_mean_rdm` where the written recipe is asked for, and
    `rho` with both ceilings to a reader. The scores square: look at the sign of `rho`, and at
    `floor`. State: 8 K D bytes, besides the prepared brain.

    Args:
        brain: `BrainRDMs`, or a tensor (K, K), (S, K, K) or (S, Tb, K, K). With brain time the
            correlations are averaged over it within each subject, before they are squared: the MEG
            track.
        conditions: which of the brain's conditions to use, in this order; the names of its rows
            where it has none. If None, all of them.
        dissimilarity: how the network's RDM is made, see `rdm`.
        comparison: how RDMs are compared, see `compare_rdms`.
        recipe: "mean-rdm", "algonauts2019", or "none" for 100 times `r2`.
        nan_policy: of the brain's RDMs, see `compare_rdms`; "error" refuses NaN at construction.
            Pairs that are NaN in the network's RDM, of a dead layer say, make the result NaN under
            "error" and "propagate", with a warning; else they are left out, ceilings included.
        projection: as in `RDM`, with its cost in accuracy.
        projection_seed: as in `RDM`.
        missing: a condition never shown is an "error", or "nan": its pairs are left out.
        shuffles: how many times to permute the network's conditions, for `floor`, `floor_95` and
            `p_value`.
        shuffle_seed: the seed of the permutations.
        folds: as in `RDM`.
        precision: as in `RDM`.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` is that of `RDM`.

    Returns:
        A dict: `score` (), `score_mean_rdm` (), `score_algonauts2019` (), `rho` (), the mean of
        `rho_per_subject` (S,), `r2` (), the mean of their squares, `ceiling_upper`,
        `ceiling_lower`, `ceiling_upper_r2`, `ceiling_lower_r2` (), `n_pairs` (), `rho_mean_rdm`
        (), the correlation with the mean RDM. With `shuffles` also, behind `n_pairs`, `floor` (),
        the mean score of shuffled conditions, and `p_value` (), the share of permutations, the
        identity counted, whose `rho` is at least as large; and last `floor_95` (), the 95th
        percentile of the scores of shuffled conditions. Correlations from -1
        to 1, scores in percent, never clipped. Ceilings and scores are NaN for one subject, scores
        also where the ceiling is not positive, with a warning that gives the reason.

    Raises:
        ValueError: as `RDM`, and for brains that do not fit.

    References:
        Kriegeskorte et al. (2008); Nili et al. (2014); Cichy et al. (2019), arXiv:1905.05675. Equal
        to SciPy's Spearman to 1e-12.

    Example:
        >>> import torch
        >>> from dynmetrics.rsa import RSA
        >>> brain = torch.tensor([[[0.0, 1, 2], [1, 0, 3], [2, 3, 0]],
        ...                       [[0.0, 1, 3], [1, 0, 4], [3, 4, 0]]])
        >>> metric = RSA(brain=brain, dissimilarity="euclidean")
        >>> metric.update(torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1]))
        >>> metric.update(torch.tensor([[-2.0]]), torch.tensor([2]))
        >>> print(f"{metric.compute()['rho']:.3f}")
        1.000
    """

    def __init__(
        self,
        brain: BrainRDMs | Tensor,
        *,
        conditions: Any = None,
        dissimilarity: str = "correlation",
        comparison: str = "spearman",
        recipe: str = "mean-rdm",
        nan_policy: str = "error",
        projection: int | None = None,
        projection_seed: int = 0,
        missing: str = "error",
        shuffles: int = 0,
        shuffle_seed: int = 0,
        folds: Any = None,
        precision: Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        for name, value in (("shuffles", shuffles), ("shuffle_seed", shuffle_seed)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise refuse(name, "an integer of at least 0", describe(value))
        check_seed("shuffle_seed", shuffle_seed)
        super().__init__(
            brains={"brain": brain},
            conditions=conditions,
            dissimilarity=dissimilarity,
            comparison=comparison,
            recipe=recipe,
            nan_policy=nan_policy,
            projection=projection,
            projection_seed=projection_seed,
            missing=missing,
            folds=folds,
            precision=precision,
            **kwargs,
        )
        self.shuffles = shuffles
        self.shuffle_seed = shuffle_seed

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """The axis letters of every entry of the result."""
        names = ["score", "score_mean_rdm", "score_algonauts2019", "rho", "rho_per_subject"]
        names += ["r2", "ceiling_upper", "ceiling_lower", "ceiling_upper_r2", "ceiling_lower_r2"]
        names += ["n_pairs", "floor", "p_value"] if self.shuffles else ["n_pairs"]
        names += ["rho_mean_rdm", "floor_95"] if self.shuffles else ["rho_mean_rdm"]
        return {name: ("S",) if name == "rho_per_subject" else () for name in names}

    def compute(self) -> dict[str, Tensor]:
        """Correlations, ceilings and scores of everything seen."""
        target = self.targets["brain"]
        model = self.rdms()[0]
        found = target.compare(model.unsqueeze(0), self.leaves_out_missing)[0]
        subjects, mean, ceiling = over_window(found)
        result = scores(subjects, mean, ceiling, self.recipe)
        self.warn_of_ceilings()
        result |= {"rho_per_subject": subjects, "n_pairs": found.pairs}
        if self.shuffles:
            result |= self._shuffled(model, ceiling, result["rho"])
        return {name: result[name] for name in self.axes}

    def _shuffled(self, model: Tensor, ceiling: Ceiling, rho: Tensor) -> dict[str, Tensor]:
        """Scores of a network whose conditions have changed places, which has no right to any."""
        generator = torch.Generator().manual_seed(self.shuffle_seed)
        keys = torch.rand(self.shuffles, len(model), generator=generator)
        permutations = keys.argsort(1).to(model.device)
        subjects, mean = self.targets["brain"].permuted(
            model, permutations, self.leaves_out_missing
        )
        chance = scores(subjects.mean(2), mean.mean(1), ceiling, self.recipe)
        # Rounding must not tell a permutation that changes nothing from the identity.
        as_large = (chance["rho"] >= rho - 1e-12).sum()
        p_value = (1 + as_large) / (1 + self.shuffles)
        return {
            "floor": chance["score"].mean(),
            "floor_95": chance["score"].quantile(0.95),
            "p_value": torch.where(rho.isnan(), torch.nan, p_value.to(torch.float64)),
        }
