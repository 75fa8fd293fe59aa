"""BrainRDMs: what is known of a brain, with the names that belong to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_tensor, describe, refuse
from dynmetrics.rsa.conditions import Conditions
from dynmetrics.rsa.vectors import check_symmetry, upper_triangle


@dataclass(frozen=True, eq=False)
class BrainRDMs:
    """RDMs of a brain region, of one or several subjects, perhaps over time.

    Distances of any kind will do, decoding accuracies of pairs too: comparisons by rank ask only
    that more means more different. The diagonal is never read.

    Args:
        rdms: (K, K), (S, K, K) or (S, Tb, K, K), symmetric.
        conditions: the K ids in the order of the rows; None for 0 to K - 1.
        name: such as "IT".
        times: (Tb,), the time of each RDM.

    Raises:
        ValueError: for shapes that do not fit, asymmetric RDMs, repeated ids, and times that are
            not finite.

    Example:
        >>> import torch
        >>> from dynmetrics.rsa import BrainRDMs
        >>> rdms = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
        >>> BrainRDMs(rdms, ("cat", "dog", "car")).select(["car", "cat"]).rdms
        tensor([[0., 2.],
                [2., 0.]])
    """

    rdms: Tensor
    conditions: tuple[int | str, ...] | None = None
    name: str = ""
    times: Tensor | None = None

    def __post_init__(self) -> None:
        check_tensor("rdms", self.rdms)
        if self.rdms.is_meta:
            raise refuse("rdms", "numbers", describe(self.rdms))
        shape = self.rdms.shape
        if self.rdms.ndim not in (2, 3, 4) or shape[-1] != shape[-2] or 0 in shape:
            expected = "the shape (K, K), (S, K, K) or (S, Tb, K, K)"
            raise refuse("rdms", expected, describe(self.rdms))
        if shape[-1] < 2:
            raise refuse("rdms", "at least 2 conditions", describe(self.rdms))
        check_symmetry("rdms", self.rdms.to(torch.float64))
        if self.conditions is not None:
            ids = Conditions("conditions", self.conditions).ids
            if len(ids) != shape[-1]:
                raise refuse("conditions", f"{shape[-1]} ids", f"{len(ids)}")
            object.__setattr__(self, "conditions", ids)
        if not isinstance(self.name, str):
            raise refuse("name", "a text", describe(self.name))
        if self.times is not None:
            object.__setattr__(self, "times", _checked_times(self.times, self.rdms))

    def ids(self) -> Conditions:
        """The conditions of the rows."""
        chosen = self.rdms.shape[-1] if self.conditions is None else self.conditions
        return Conditions("brain", chosen)

    def select(self, conditions: Sequence[int] | Sequence[str]) -> BrainRDMs:
        """The RDMs of some conditions, in the order given; unknown ids are an error."""
        chosen = Conditions("conditions", conditions)
        rows = torch.tensor(self.ids().positions("conditions", chosen), device=self.rdms.device)
        rdms = self.rdms[..., rows, :][..., rows]
        return BrainRDMs(rdms, chosen.ids, self.name, self.times)

    def vectors(self) -> Tensor:
        """The pairs of every RDM (S, Tb, P) in float64."""
        rdms = self.rdms.to(torch.float64)
        rdms = rdms.reshape(-1, 1, *rdms.shape[-2:]) if rdms.ndim < 4 else rdms
        return upper_triangle(rdms)


def _checked_times(times: Any, rdms: Tensor) -> Tensor:
    """A finite number for each timestep of a brain."""
    try:
        checked = torch.as_tensor(times)
    except (TypeError, ValueError, RuntimeError):
        raise refuse("times", "numbers", describe(times)) from None
    if rdms.ndim != 4 or checked.shape != rdms.shape[1:2]:
        raise refuse("times", "a time for each RDM of (S, Tb, K, K)", describe(checked))
    finite = not checked.is_complex() and bool(checked.isfinite().all())
    if not finite or checked.dtype is torch.bool:
        raise refuse("times", "finite numbers", describe(times))
    return checked


def as_brain(argument: str, brain: Any, conditions: Any) -> BrainRDMs:
    """The brain with its ids: `conditions` chooses among the ids of a brain that has them.

    A brain without ids, or a tensor, has as many conditions as `conditions` names.
    """
    known: BrainRDMs = brain if isinstance(brain, BrainRDMs) else BrainRDMs(brain)
    if conditions is None:
        return BrainRDMs(known.rdms, known.ids().ids, known.name, known.times)
    if known.conditions is not None:
        return known.select(conditions)
    ids = Conditions("conditions", conditions).ids
    if len(ids) != known.rdms.shape[-1]:
        expected = f"{known.rdms.shape[-1]} ids, for the rows of {argument}"
        raise refuse("conditions", expected, f"{len(ids)}")
    return BrainRDMs(known.rdms, ids, known.name, known.times)


def to_rsatoolbox(brain: BrainRDMs | Tensor, name: str = "") -> Any:
    """RDMs as an `rsatoolbox.rdm.RDMs` object, for that package's inference and plots.

    Args:
        brain: `BrainRDMs`, or a tensor as they take it, such as the result of `RDM`.
        name: put into the descriptors.

    Returns:
        `rsatoolbox.rdm.RDMs` with one RDM for each subject and timestep (descriptors "subject" and
        "time") and the ids as pattern descriptor "conditions".

    Raises:
        ModuleNotFoundError: without rsatoolbox.
    """
    from rsatoolbox.rdm import RDMs

    brain = as_brain("brain", brain, None)
    vectors = brain.vectors().cpu()
    subjects, steps = vectors.shape[:2]
    times = torch.arange(steps) if brain.times is None else brain.times
    return RDMs(
        dissimilarities=vectors.flatten(0, 1).numpy(),
        descriptors={"name": name or brain.name},
        rdm_descriptors={
            "subject": [s for s in range(subjects) for _ in range(steps)],
            "time": times.repeat(subjects).tolist(),
        },
        pattern_descriptors={"conditions": list(brain.ids().ids)},
    )
