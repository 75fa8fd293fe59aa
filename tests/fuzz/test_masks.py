"""What a mask or a length leaves out has no effect, whatever stands there."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from dynmetrics.core import StreamingMetric
from tests.contract import Batch, MetricContract, assert_same, fed, quietly
from tests.fuzz.families import CONTRACTS, EXAMPLES, law_of, name_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

campaign = settings(
    max_examples=2 * EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def _taking(argument: str) -> list[type[MetricContract]]:
    return [
        contract
        for contract in CONTRACTS
        if argument in inspect.signature(type(contract().make()).update).parameters
    ]


STEPPED = {"success", "distances", "actions", "positions"}
GARBAGE = (float("nan"), float("inf"), -float("inf"), 1e30)
NUMBERS = (10**12, -(10**12), 3, 0)


@pytest.mark.parametrize("contract", _taking("mask"), ids=name_of)
@campaign
@given(seed=st.integers(0, 2**31), share=st.sampled_from((0.0, 0.1, 0.5, 0.9)), data=st.data())
def test_masked_entries(
    contract: type[MetricContract], seed: int, share: float, data: st.DataObject
) -> None:
    law = law_of(contract)
    generator = torch.Generator().manual_seed(seed)
    metric, batches = law.make(), law.batches()
    masked = [_masked(metric, batch, share, generator) for batch in batches]
    number = data.draw(st.sampled_from(range(len(GARBAGE))))
    spoilt = [_spoilt(metric, batch, number) for batch in masked]
    changed = sum(_differ(a, b) for a, b in zip(masked, spoilt, strict=True))
    assert changed or not any(_left_out(batch["mask"]) for batch in masked)
    expected = quietly(fed(law.make(), masked).compute)
    fed(metric, spoilt)
    assert_same(quietly(metric.compute), expected, 0.0)
    nothing = {**spoilt[0], "mask": torch.zeros_like(spoilt[0]["mask"])}
    metric.update(**nothing)
    result = quietly(metric.compute)
    if isinstance(result, dict) and "n_excluded" in result:
        # Of what is left out, this entry counts the samples.
        assert result.pop("n_excluded") == expected.pop("n_excluded") + len(nothing["mask"])
    assert_same(result, expected, 0.0)


@pytest.mark.parametrize("contract", _taking("lengths"), ids=name_of)
@campaign
@given(seed=st.integers(0, 2**31), number=st.sampled_from(GARBAGE))
def test_steps_behind_the_length(contract: type[MetricContract], seed: int, number: float) -> None:
    law = law_of(contract)
    generator = torch.Generator().manual_seed(seed)
    batches, spoilt, hidden = [], [], False
    for batch in law.batches():
        stepped = [n for n, v in batch.items() if n in STEPPED and v.ndim > 1 and v.shape[1]]
        if stepped:
            n, steps = batch[stepped[0]].shape[:2]
            lengths = torch.randint(1, steps + 1, (n,), generator=generator)
            batch = {**batch, "lengths": lengths}
            behind = torch.arange(steps) >= lengths[:, None]
            hidden |= bool(behind.any())
            spoilt.append({**batch, **{s: _filled(batch[s], behind, number) for s in stepped}})
        else:
            spoilt.append(batch)
        batches.append(batch)
    assert hidden == any(_differ(a, b) for a, b in zip(batches, spoilt, strict=True))
    expected = quietly(fed(law.make(), batches).compute)
    assert_same(quietly(fed(law.make(), spoilt).compute), expected, 0.0)


def _masked(
    metric: StreamingMetric, batch: Batch, share: float, generator: torch.Generator
) -> Batch:
    """The batch with a random mask; what the batch's own mask leaves out stays out."""
    mask = torch.rand(_mask_shape(metric, batch), generator=generator) < share
    given = batch.get("mask")
    if isinstance(given, Tensor):
        mask &= given.reshape(*given.shape, *[1] * (mask.ndim - given.ndim))
    return {**batch, "mask": mask}


def _mask_shape(metric: StreamingMetric, batch: Batch) -> tuple[int, ...]:
    if "error" in batch:
        return tuple(batch["error"].shape)
    preds: Tensor = batch["preds"]
    shape, name = tuple(preds.shape), type(metric).__name__
    if name in ("PSNR", "SSIM"):
        return shape[:-3]
    if name in ("RolloutError", "SegmentScores"):
        return shape[:2]
    if preds.ndim == (2 if preds.is_floating_point() else 1):
        return shape[:1]
    axes = _axes(metric, preds)
    return shape[axes.index("B")], shape[axes.index("T")]


def _axes(metric: StreamingMetric, preds: Tensor) -> str:
    layout: str = getattr(metric, "layout", "BTC")
    return layout if preds.is_floating_point() else layout.replace("C", "")


def _spoilt(metric: StreamingMetric, batch: Batch, number: int) -> Batch:
    """Garbage wherever the mask is False; labels only where each step counts by its own."""
    names = ["preds", "error"]
    if "first_label" not in str(metric.configuration) and type(metric).__name__ not in _BY_FIRST:
        names.append("target")
    result, mask = dict(batch), batch["mask"]
    for name in names:
        value = batch.get(name)
        if not isinstance(value, Tensor):
            continue
        left_out = ~mask
        if name == "preds" and mask.ndim == 2 and hasattr(metric, "layout"):
            axes = _axes(metric, value)
            if "C" in axes:
                left_out = left_out.unsqueeze(-1).permute(*["BTC".index(axis) for axis in axes])
            elif axes == "TB":
                left_out = left_out.T
        elif value.shape[: mask.ndim] != mask.shape:
            # One label for all timesteps.
            continue
        chosen = GARBAGE[number] if value.is_floating_point() else NUMBERS[number]
        result[name] = _filled(value, left_out, chosen)
    return result


_BY_FIRST = {"TemporalConfidence"}
"""Metrics with a reading of the first label, which is found without regard to the mask."""


def _filled(value: Tensor, where: Tensor, number: float) -> Tensor:
    where = where.reshape(*where.shape, *[1] * (value.ndim - where.ndim))
    if not value.is_floating_point():
        number = int(number) if math.isfinite(number) else 7
    other = ~value if value.dtype is torch.bool else torch.full_like(value, number)
    return torch.where(where, other, value)


def _left_out(mask: Tensor) -> bool:
    return bool((~mask).any())


def _differ(one: Batch, other: Batch) -> bool:
    return any(
        isinstance(value, Tensor)
        and not torch.equal(value.nan_to_num(7), other[name].nan_to_num(7))
        for name, value in one.items()
    )
