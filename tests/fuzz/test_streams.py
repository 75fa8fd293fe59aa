"""However a stream is cut, shared, copied and merged, its value is that of one pass."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from dynmetrics.core import StreamingMetric
from tests.contract import Batch, MetricContract, assert_same, fed, quietly
from tests.fuzz.families import CONTRACTS, EXAMPLES, law_of, name_of, public_metrics

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

campaign = settings(
    max_examples=2 * EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def test_every_public_metric_is_in_the_campaign() -> None:
    assert public_metrics() <= {type(contract().make()) for contract in CONTRACTS}


@pytest.mark.parametrize("contract", CONTRACTS, ids=name_of)
@campaign
@given(seed=st.integers(0, 2**31), data=st.data())
def test_a_stream_in_any_form(
    contract: type[MetricContract], seed: int, data: st.DataObject
) -> None:
    law = law_of(contract)
    # The batches of the contract, each input in a form of its own; then as cut as it allows.
    batches = law.batches()
    if "any_split_in_any_order" not in law.optout and not getattr(law, "depends_on_order", False):
        batches = law.scattered(seed)
    expected = quietly(fed(law.make(), batches).compute)
    pieces = [_in_another_form(batch, data) for batch in batches]
    before = copy.deepcopy(pieces)
    places = data.draw(st.lists(st.integers(0, 3), min_size=len(pieces), max_size=len(pieces)))
    # Parts are joined in their order, so that metrics that keep rows see the stream as it was.
    places.sort()
    parts = [law.make() for _ in range(4)]
    for piece, place in zip(pieces, places, strict=True):
        parts[place] = _copied(parts[place], data.draw(st.sampled_from(_COPIES)), law)
        _feed(parts[place], piece, data.draw(st.sampled_from(_WAYS)))
    whole = parts[3]
    for part in reversed(parts[:3]):
        whole.merge_state(part)
    assert_same(quietly(whole.compute), _plain(expected), max(law.atol, 1e-9))
    _assert_untouched(pieces, before)
    whole.reset()
    assert_same(quietly(fed(whole, batches).compute), _plain(expected), max(law.atol, 1e-9))


_COPIES = ("none", "none", "pickle", "deepcopy", "state_dict")
_WAYS = ("update", "update", "forward", "inference")


def _copied(metric: StreamingMetric, how: str, law: MetricContract) -> StreamingMetric:
    if how == "pickle":
        restored: StreamingMetric = pickle.loads(pickle.dumps(metric))
        return restored
    if how == "deepcopy":
        return copy.deepcopy(metric)
    if how == "state_dict":
        fresh = law.make()
        fresh.load_state_dict(metric.state_dict())
        return fresh
    return metric


def _feed(metric: StreamingMetric, batch: Batch, way: str) -> None:
    if way == "inference":
        with torch.inference_mode():
            metric.update(**batch)
    elif way == "forward":
        quietly(lambda: metric(**batch))
    else:
        metric.update(**batch)


def _in_another_form(batch: Batch, data: st.DataObject) -> Batch:
    """The same numbers: not contiguous, with a gradient, or as an expanded view where it fits."""
    return {name: _another_form(value, data) for name, value in batch.items()}


def _another_form(value: Any, data: st.DataObject) -> Any:
    if not isinstance(value, Tensor) or not value.ndim:
        return value
    form = data.draw(st.sampled_from(("plain", "strided", "turned", "gradient")))
    if form == "strided":
        return torch.stack([value, value], -1)[..., 0]
    if form == "turned":
        return value.transpose(0, -1).contiguous().transpose(0, -1)
    if form == "gradient" and value.is_floating_point():
        return value.clone().requires_grad_()
    return value


def _plain(result: Any) -> Any:
    if isinstance(result, Tensor):
        return result.detach().cpu().numpy()
    return {name: value.detach().cpu().numpy() for name, value in result.items()}


def _assert_untouched(pieces: list[Batch], before: list[Batch]) -> None:
    for piece, old in zip(pieces, before, strict=True):
        for name, value in piece.items():
            if isinstance(value, Tensor):
                same = torch.equal(value.nan_to_num(), old[name].nan_to_num())
                assert same, f"{name} was changed in place"
