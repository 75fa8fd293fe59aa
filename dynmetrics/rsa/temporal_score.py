"""TemporalRSA: a network's timesteps against a brain's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice
from dynmetrics.rsa.brain_data import BrainRDMs
from dynmetrics.rsa.brain_metric import BrainMetric, windowed
from dynmetrics.rsa.ceilings import Ceiling
from dynmetrics.rsa.recipes import percent, scores

_MAPS = ("rho", "score", "score_mean_rdm", "score_algonauts2019", "rho_mean_rdm", "r2")
_CEILINGS = ("ceiling_upper", "ceiling_lower", "ceiling_upper_r2", "ceiling_lower_r2")


class TemporalRSA(BrainMetric):
    """When a network represents conditions as the brain does: model time by brain time.

    The RDM of every timestep of the network is compared with every timestep of the brain, as in
    `RSA`. A brain without time has one timestep. A peak is chosen from many: it is biased upwards.

    Args:
        brain: `BrainRDMs`, or a tensor (K, K), (S, K, K) or (S, Tb, K, K).
        window: the first and the last time of the brain to use, both included, in the unit of
            `times`, or as indices where the brain has none. If None, all of it.
        layout: "BT" for activations (B, T, ...), "TB" for (T, B, ...).
        conditions: as in `RSA`, like all other options.
        dissimilarity: how the network's RDMs are made.
        comparison: how RDMs are compared.
        recipe: "mean-rdm", "algonauts2019" or "none".
        nan_policy: of the brain's RDMs.
        projection: how many random signed sums of features to keep.
        projection_seed: the seed of their draw.
        missing: what a condition that was never shown is.
        folds: for "crossnobis".
        precision: for "crossnobis".
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` is that of `TemporalRDM`: batches may differ in T.

    Returns:
        A dict: `score_peak` (), the largest score, `rho` (T, Tb), mean over subjects, `score` (T,
        Tb), `peak_step` (), the model timestep of the peak, `ceiling_upper`, `ceiling_lower`,
        `ceiling_upper_r2`, `ceiling_lower_r2` (Tb,), `peak_time` (), the index of the brain time
        of the peak, both -1 without one; `score_mean_rdm`, `score_algonauts2019`, `rho_mean_rdm`
        and `r2` (T, Tb); `score_window` (T,), the score "algonauts2019" of the window as a whole:
        correlations averaged over brain time within each subject, then squared, as the MEG track
        does; `n_pairs` (T,). NaN as in `RSA`.

    Raises:
        ValueError: as `RSA`, and for a window without a brain timestep.

    References:
        Cichy et al. (2014, 2019). Equal to SciPy's Spearman to 1e-12.

    Example:
        >>> import torch
        >>> from dynmetrics.rsa import TemporalRSA
        >>> brain = torch.tensor([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]])
        >>> metric = TemporalRSA(brain=brain, dissimilarity="euclidean", recipe="none")
        >>> metric.update(torch.tensor([[[0.0], [0.0]], [[1.0], [5.0]]]), torch.tensor([0, 1]))
        >>> metric.update(torch.tensor([[[-2.0], [1.0]]]), torch.tensor([2]))
        >>> metric.compute()["rho"]
        tensor([[ 1.0000],
                [-0.5000]], dtype=torch.float64)
    """

    by_time = True

    def __init__(
        self,
        brain: BrainRDMs | Tensor,
        *,
        window: tuple[float, float] | None = None,
        layout: str = "BT",
        conditions: Any = None,
        dissimilarity: str = "correlation",
        comparison: str = "spearman",
        recipe: str = "mean-rdm",
        nan_policy: str = "error",
        projection: int | None = None,
        projection_seed: int = 0,
        missing: str = "error",
        folds: Any = None,
        precision: Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        check_choice("layout", layout, ("BT", "TB"))
        super().__init__(
            brains={"brain": windowed(brain, window)},
            layout=layout,
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

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """The axis letters of every entry of the result."""
        axes: dict[str, tuple[str, ...]] = {"score_peak": (), "rho": ("T", "Tb")}
        axes |= {"score": ("T", "Tb"), "peak_step": ()}
        axes |= dict.fromkeys(_CEILINGS, ("Tb",))
        axes |= {"peak_time": ()}
        axes |= {name: ("T", "Tb") for name in _MAPS if name not in axes}
        return axes | {"score_window": ("T",), "n_pairs": ("T",)}

    def compute(self) -> dict[str, Tensor]:
        """The maps of everything seen."""
        target = self.targets["brain"]
        found = target.compare(self.rdms(), self.leaves_out_missing)
        whole = Ceiling(target.ceiling.upper.mT, target.ceiling.lower.mT)
        result = _ceilings(whole)
        self.warn_of_ceilings()
        rows: dict[str, list[Tensor]] = {name: [] for name in (*_MAPS, "score_window", "n_pairs")}
        for step in found:
            ceiling = Ceiling(step.ceiling.upper.mT, step.ceiling.lower.mT)
            entries = scores(step.subjects.mT, step.mean, ceiling, self.recipe)
            entries["n_pairs"] = step.pairs
            squares = step.subjects.mean(1).square().mean()
            bound = step.ceiling.upper.mean(1).square().mean()
            entries["score_window"] = percent(squares, bound)
            for name, values in rows.items():
                values.append(entries[name])
        times = whole.upper.shape[0]
        for name, values in rows.items():
            shape = (0, times) if name in _MAPS else (0,)
            dtype = torch.int64 if name == "n_pairs" else torch.float64
            empty = whole.upper.new_zeros(shape, dtype=dtype)
            result[name] = torch.stack(values) if values else empty
        result |= _peak(result["score"])
        return {name: result[name] for name in self.axes}


def _ceilings(ceiling: Ceiling) -> dict[str, Tensor]:
    """The ceilings (Tb,) of a brain, from those of its subjects (Tb, S)."""
    return {
        "ceiling_upper": ceiling.upper.mean(-1),
        "ceiling_lower": ceiling.lower.mean(-1),
        "ceiling_upper_r2": ceiling.upper.square().mean(-1),
        "ceiling_lower_r2": ceiling.lower.square().mean(-1),
    }


def _peak(score: Tensor) -> dict[str, Tensor]:
    """The largest of all scores (T, Tb) and where it is."""
    known = score.nan_to_num(-torch.inf).ravel()
    if not len(known) or bool((known == -torch.inf).all()):
        nowhere = torch.tensor(-1, device=score.device)
        return {
            "score_peak": score.new_tensor(torch.nan),
            "peak_step": nowhere,
            "peak_time": nowhere,
        }
    best = known.argmax()
    return {
        "score_peak": known[best],
        "peak_step": best // score.shape[1],
        "peak_time": best % score.shape[1],
    }
