"""The argument checks: what they refuse, and how the message reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dynmetrics.core.checks import (
    check_choice,
    check_fraction,
    check_positive_int,
    check_tensor,
    describe,
    refuse,
    select_output,
    whole_numbers,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.zeros(2, 3), "a float32 tensor of shape (2, 3) on cpu"),
        (torch.zeros((), dtype=torch.int64, device="meta"), "a int64 tensor of shape () on meta"),
        ({"b": 1, 3: 2}, "a mapping with the entries ['3', 'b']"),
        ("micro", "str 'micro'"),
        (None, "NoneType None"),
    ],
)
def test_describe(value: Any, text: str) -> None:
    assert describe(value) == text


def test_describe_keeps_long_values_short() -> None:
    text = describe(list(range(1000)))
    assert text.startswith("list [0, 1, 2")
    assert text.endswith("...")
    assert len(text) < 100


def test_refuse_has_one_form() -> None:
    error = refuse("top_k", "one integer", "str 'five'")
    assert isinstance(error, ValueError)
    assert str(error) == "top_k: expected one integer, got str 'five'"


@pytest.mark.parametrize(
    "call",
    [
        lambda: check_choice("average", "mikro", ("micro", "macro")),
        lambda: check_choice("average", None, ("micro",)),
        lambda: check_choice("average", ["micro"], ("micro",)),
        lambda: check_positive_int("k", 0),
        lambda: check_positive_int("k", -1),
        lambda: check_positive_int("k", 1.0),
        lambda: check_positive_int("k", True),
        lambda: check_positive_int("k", torch.tensor(1)),
        lambda: check_fraction("confidence", 0),
        lambda: check_fraction("confidence", 1.0),
        lambda: check_fraction("confidence", 95),
        lambda: check_fraction("confidence", float("nan")),
        lambda: check_fraction("confidence", True),
        lambda: check_fraction("confidence", "0.95"),
        lambda: check_tensor("preds", [1.0]),
        lambda: check_tensor("preds", None),
        lambda: check_tensor("preds", torch.zeros(2, dtype=torch.complex64)),
        lambda: check_tensor("preds", torch.zeros(2, 2).to_sparse()),
        lambda: check_tensor("preds", torch.zeros(2, device="meta"), CPU),
        lambda: whole_numbers("target", torch.tensor([0.0, 0.5])),
        lambda: whole_numbers("target", torch.tensor([0.0, torch.nan])),
        lambda: select_output("preds", {"classifier": 1}, "IT"),
    ],
)
def test_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"^\w+: expected .+, got .+") as caught:
        call()
    assert "\n" not in str(caught.value)


def test_accepted() -> None:
    check_choice("average", "micro", ("micro", "macro"))
    check_positive_int("k", 1)
    check_fraction("confidence", 0.95)
    check_tensor("preds", torch.zeros(0, 3))
    check_tensor("preds", torch.zeros(2, device="meta"))
    check_tensor("preds", torch.zeros(2), CPU)


def test_whole_numbers() -> None:
    for value in (
        torch.tensor([2.0, -1.0]),
        torch.tensor([2, -1], dtype=torch.int8),
        torch.tensor([2, -1]),
        torch.tensor([2.0, -1.0], dtype=torch.bfloat16),
    ):
        result = whole_numbers("target", value)
        assert result.dtype is torch.int64
        assert result.tolist() == [2, -1]
    assert whole_numbers("target", torch.tensor([True, False])).tolist() == [1, 0]
    assert whole_numbers("target", torch.zeros(0)).shape == (0,)


def test_a_mapping_where_a_tensor_is_due_points_to_network_output() -> None:
    with pytest.raises(ValueError, match=r"choose one by network_output.*\['aux', 'main'\]"):
        check_tensor("preds", {"main": torch.zeros(1), "aux": torch.zeros(1)})


def test_select_output() -> None:
    tensor = torch.zeros(1)
    assert select_output("preds", {"IT": tensor}, "IT") is tensor
    assert select_output("target", tensor, "IT") is tensor
    with pytest.raises(ValueError, match=r"preds: expected .*'IT'.*\['V1', 'V4'\]"):
        select_output("preds", {"V4": 0, "V1": 1}, "IT")
