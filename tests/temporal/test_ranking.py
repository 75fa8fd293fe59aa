"""The label against the first maximum: the short ways of the CPU are exact."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dynmetrics.temporal.ranking import label_hits, label_ranks


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


def test_memory_to_compute_in_is_of_use_inside_and_outside_of_inference_mode() -> None:
    scores, labels = torch.randn(4, 5, 40).double(), torch.randint(40, (4, 5))
    right = (scores > scores.gather(-1, labels.unsqueeze(-1))).sum(-1)

    def on_a_new_thread() -> tuple[torch.Tensor, torch.Tensor]:
        with torch.inference_mode():
            inside = label_ranks(scores, labels).clone()
        return inside, label_ranks(scores, labels)

    with ThreadPoolExecutor() as pool:
        for ranks in pool.submit(on_a_new_thread).result():
            assert torch.equal(ranks.long(), right)
