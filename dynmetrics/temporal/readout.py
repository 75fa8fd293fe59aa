"""Readouts that gather evidence: the answer at t rests on every timestep up to t."""

from __future__ import annotations

import torch

from dynmetrics.core.checks import describe, refuse
from dynmetrics.temporal.inputs import Classification

READOUTS = ("step", "cumulative", "cumulative_probabilities")


def cumulative_readout(inputs: Classification, readout: str) -> Classification:
    """Scores (B, T, C) summed over the labelled timesteps up to and including t.

    Timesteps without a label carry no evidence: before the onset, behind the offset, or masked.
    """
    scores, labels = inputs
    if not scores.is_floating_point():
        raise refuse("preds", f"scores, for readout={readout!r}", describe(scores))
    if readout == "cumulative_probabilities":
        scores = scores.softmax(-1)
    return Classification(torch.where((labels >= 0).unsqueeze(-1), scores, 0.0).cumsum(1), labels)
