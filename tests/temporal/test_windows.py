"""Presentation, reaction window and residual steps, against DynVision's golden cases and a loop."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynmetrics.temporal import first_label, presentation_mask, reaction_mask, shift_labels
from tests.golden_cases import Case, temporal_cases

mask_case = pytest.mark.parametrize("case", temporal_cases("mask"), ids=str)


def reference(pattern: str, steps: int, window: int) -> tuple[list[bool], list[bool]]:
    """Stimulus and reaction window, one timestep after the other."""
    on = [pattern[t * len(pattern) // steps] == "1" for t in range(steps)]
    reacting = [False] * steps
    for t in range(steps):
        if on[t] and (t == 0 or not on[t - 1]):
            reacting[t : t + window] = [True] * len(reacting[t : t + window])
    return on, reacting


@mask_case
def test_golden(case: Case) -> None:
    inputs, expected = case.inputs, case.expected
    on = presentation_mask(inputs["pattern"], inputs["n_timesteps"])
    reacting = reaction_mask(on, inputs["loss_reaction_time"], inputs["dt"])
    assert on.tolist() == expected["stimulus_on"]
    assert reacting.tolist() == expected["reaction_mask"]
    none = inputs["non_label_index"]
    labels = torch.where(on & ~reacting, inputs["label"], none)
    assert labels.tolist() == expected["labels_before_residual"]
    shifted = shift_labels(labels, inputs["n_residual_timesteps"], fill=none)
    assert shifted.tolist() == expected["labels_after_residual"]
    assert (shifted >= 0).nonzero().flatten().tolist() == expected["valid_steps"]


@given(st.text("01", min_size=1, max_size=8), st.integers(1, 25), st.integers(0, 12))
def test_against_a_loop(pattern: str, steps: int, window: int) -> None:
    on = presentation_mask(pattern, steps)
    expected_on, expected_reacting = reference(pattern, steps, window)
    assert on.tolist() == expected_on
    assert reaction_mask(on, 0.5 * window, 0.5).tolist() == expected_reacting


def test_patterns_in_every_form() -> None:
    for pattern in ("1011", [1, 0, 1, 1], [True, False, True, True], torch.tensor([1.0, 0, 1, 1])):
        assert presentation_mask(pattern, 8).tolist() == presentation_mask("1011", 8).tolist()
        assert reaction_mask(pattern, 1.0, 1.0).tolist() == [True, False, True, False]


def test_a_pattern_for_every_sample() -> None:
    patterns = torch.tensor([[1, 0], [0, 1]])
    on = presentation_mask(patterns, 4)
    assert on.int().tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]
    assert reaction_mask(on, 3.0, 1.0).int().tolist() == [[1, 1, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("reaction_time", "dt", "steps"),
    [(0.0, 2.0, 0), (-1.0, 2.0, 0), (1e-12, 2.0, 1), (4.0, 2.0, 2), (4.1, 2.0, 3), (1.1, 0.1, 11)],
)
def test_length_of_the_reaction_window(reaction_time: float, dt: float, steps: int) -> None:
    assert int(reaction_mask("1" * 20, reaction_time, dt).sum()) == steps


def test_shift_keeps_dtype_and_leading_axes() -> None:
    labels = torch.tensor([[3, 3], [5, -1]], dtype=torch.int32)
    shifted = shift_labels(labels, 2, fill=-7)
    assert shifted.dtype is torch.int32
    assert shifted.tolist() == [[-7, -7, 3, 3], [-7, -7, 5, -1]]
    assert shift_labels(labels, 0).tolist() == labels.tolist()
    assert shift_labels(torch.tensor([4, 4]), 1).tolist() == [-1, 4, 4]


def test_first_label_is_found_after_the_shift() -> None:
    labels = torch.tensor([[-1, 6, 2], [-1, -1, -1]])
    assert first_label(shift_labels(labels, 1)).tolist() == [[6] * 4, [-1] * 4]


@pytest.mark.parametrize("pattern", ["", "12", "on", [], [2], 1, None, torch.tensor([0.5]), "1 0"])
def test_refused_patterns(pattern: Any) -> None:
    with pytest.raises(ValueError, match=r"^pattern: expected 0 and 1"):
        presentation_mask(pattern, 4)
    with pytest.raises(ValueError, match=r"^pattern: expected 0 and 1"):
        reaction_mask(pattern, 1.0, 1.0)


@pytest.mark.parametrize("steps", [0, -1, 2.0, True])
def test_refused_numbers_of_timesteps(steps: Any) -> None:
    with pytest.raises(ValueError, match=r"^T: expected an integer"):
        presentation_mask("1", steps)


@pytest.mark.parametrize("dt", [0.0, -1.0, math.inf, math.nan])
def test_refused_time_steps(dt: float) -> None:
    with pytest.raises(ValueError, match=r"^dt: expected a positive number"):
        reaction_mask("1", 1.0, dt)


def test_refused_reaction_times_and_shifts() -> None:
    for reaction_time in (math.inf, math.nan):
        with pytest.raises(ValueError, match=r"^reaction_time: expected a finite number"):
            reaction_mask("1", reaction_time, 1.0)
    for n_residual in (-1, 1.0, True):
        with pytest.raises(ValueError, match=r"^n_residual: expected an integer of at least 0"):
            shift_labels(torch.tensor([1]), n_residual)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^labels: expected the shape \(..., T\)"):
        shift_labels(torch.tensor(1), 1)
