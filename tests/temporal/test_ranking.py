"""The label against the first maximum: the short ways of the CPU are exact."""

from __future__ import annotations

import pytest
import torch

from dynmetrics.temporal.ranking import label_hits


def _scores(generator: torch.Generator, classes: int, levels: int) -> torch.Tensor:
    """Scores of few levels, so that rows tie, some with a NaN or an infinity."""
    scores = torch.randint(levels, (9, 5, classes), generator=generator).float()
    for odd in (torch.nan, torch.inf, -torch.inf):
        scores[torch.rand(scores.shape, generator=generator) < 0.2 / classes] = odd
    return scores


@pytest.mark.parametrize("levels", [1, 4, 10**6])
@pytest.mark.parametrize("classes", [2, 10, 31, 32, 100, 300])
@pytest.mark.parametrize("right", [0.0, 0.3, 1.0])
def test_hits_are_those_of_argmax(classes: int, levels: int, right: float) -> None:
    generator = torch.Generator().manual_seed(classes)
    for _ in range(10):
        scores = _scores(generator, classes, levels)
        labels = torch.randint(-2, classes + 2, (9, 5), generator=generator)
        known = torch.rand(labels.shape, generator=generator) < right
        labels = torch.where(known, scores.argmax(-1), labels)
        nan = scores.isnan().any(-1)
        for layout in (scores, scores.transpose(0, 1).contiguous().transpose(0, 1)):
            [hits], nonfinite = label_hits(layout, labels, (1,))
            assert torch.equal(nonfinite, nan)
            assert torch.equal(hits, (scores.argmax(-1) == labels) & ~nan)
