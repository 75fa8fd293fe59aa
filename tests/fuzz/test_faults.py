"""A faulty input or option gets a clear error, or the right value; what was gathered stays."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from dynmetrics.core import StreamingMetric
from tests.contract import Batch, MetricContract, assert_equal_states, fed, quietly, values
from tests.fuzz.families import CASES, CONTRACTS, EXAMPLES, law_of, name_of, public_metrics

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")

campaign = settings(
    max_examples=5 * EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
WORDED = re.compile(r"^[\w.]+: expected .+, got .+", re.DOTALL)


def _numbers(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _filled(number: float) -> Callable[[Tensor], Any]:
    return lambda value: torch.full_like(value, number) if _numbers(value) else value


def _spoilt(number: float) -> Callable[[Tensor], Any]:
    def spoil(value: Tensor) -> Any:
        if not _numbers(value) or not value.numel():
            return value
        value = value.clone(memory_format=torch.contiguous_format)
        value.view(-1)[0] = number
        return value

    return spoil


FAULTS: dict[str, Callable[[Tensor], Any]] = {
    "None": lambda value: None,
    "text": lambda value: "junk",
    "number": lambda value: 3.5,
    "list": lambda value: [1, 2],
    "bool": lambda value: value.bool(),
    "complex": lambda value: value.to(torch.complex64),
    "integer": lambda value: value.float().nan_to_num().long(),
    "uint8": lambda value: value.float().nan_to_num().abs().to(torch.uint8),
    "float16": lambda value: value.to(torch.float16) if _numbers(value) else value,
    "bfloat16": lambda value: value.to(torch.bfloat16) if _numbers(value) else value,
    "scalar": lambda value: torch.tensor(1.0),
    "one axis less": lambda value: value[0] if value.ndim and len(value) else value,
    "one axis more": lambda value: value.unsqueeze(0),
    "one row less": lambda value: value[1:] if value.ndim else value,
    "one column less": lambda value: value[..., 1:] if value.ndim > 1 else value,
    "no rows": lambda value: value[:0] if value.ndim else value,
    "no columns": lambda value: value[..., :0] if value.ndim > 1 else value,
    "another device": lambda value: value.to("meta"),
    "sparse": lambda value: value.to_sparse(),
    "NaN": _spoilt(torch.nan),
    "infinite": _spoilt(torch.inf),
    "minus infinite": _spoilt(-torch.inf),
    "huge": _spoilt(1e30),
    "all NaN": _filled(torch.nan),
    "all equal": _filled(0.5),
    "all huge": _filled(1e30),
    "all tiny": _filled(1e-30),
    "far below": lambda value: value if value.is_floating_point() else value.long() - 10**12,
    "far above": lambda value: value if value.is_floating_point() else value.long() + 10**12,
}


@pytest.mark.parametrize("contract", CONTRACTS, ids=name_of)
@campaign
@given(data=st.data())
def test_a_faulty_input(contract: type[MetricContract], data: st.DataObject) -> None:
    law = law_of(contract)
    metric, batches = law.make(), law.batches()
    fed(metric, batches[:2])
    before = quietly(metric.compute)
    names = [name for name, value in batches[0].items() if isinstance(value, Tensor)]
    batch = dict(batches[data.draw(st.integers(0, len(batches) - 1))])
    fault = data.draw(st.sampled_from(sorted(FAULTS)))
    name = data.draw(st.sampled_from(names)) if names else None
    if name is None or not isinstance(batch.get(name), Tensor):
        return
    batch[name] = FAULTS[fault](batch[name])
    if _updated(metric, batch):
        # Whatever is no mistake has a value: NaN where there is none, but no crash.
        quietly(metric.compute)
        return
    after = quietly(metric.compute)
    for now, then in zip(values(after), values(before), strict=True):
        torch.testing.assert_close(now, then, rtol=0, atol=0, equal_nan=True)


def _updated(metric: StreamingMetric, batch: Batch) -> bool:
    """Whether the batch was taken; if not, the error has to say why, and nothing has changed."""
    states = {name: getattr(metric, name) for name in metric.state_specs}
    count = metric.update_count
    error = _refusal(lambda: metric.update(**batch))
    if error is None:
        return True
    assert WORDED.match(error), error
    assert metric.update_count == count
    assert_equal_states({name: getattr(metric, name) for name in states}, states)
    return False


def _refusal(call: Callable[[], object]) -> str | None:
    """The text of the error with which a call refuses what it gets; others are not caught."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return None


JUNK: tuple[Any, ...] = ("junk", "", -1, 0, 10**30, 1.5, -0.5, float("nan"), float("inf"), None,
        True, [], {}, b"x", object(), (1, "a"), torch.zeros(2), torch.tensor(1.0),
        torch.eye(4).to_sparse(), torch.eye(4, device="meta"), torch.eye(4, dtype=torch.complex64),
        )  # fmt: skip
RUNTIME = {"self", "kwargs"}


@pytest.mark.parametrize("cls", sorted(public_metrics(), key=str))
def test_junk_options(cls: type[StreamingMetric]) -> None:
    """Each is refused by name, or is a value that the option has; no other error comes."""
    good = _options(cls)
    for name, parameter in inspect.signature(cls).parameters.items():
        if name in RUNTIME or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        for junk in JUNK:
            CASES[cls.__name__] += 1
            error = _refusal(lambda: cls(**{**good, name: junk}))  # noqa: B023
            if parameter.annotation in ("bool", bool) and not isinstance(junk, bool):
                assert error, f"{name}={junk!r} is no switch"
            assert error is None or WORDED.match(error), f"{name}={junk!r}: {error}"


def _options(cls: type[StreamingMetric]) -> dict[str, Any]:
    """What has no default."""
    rdm = 1 - torch.eye(4)
    known = {
        "num_classes": 3, "data_range": 1.0, "max_steps": 5, "brain": rdm, "targets": {"IT": rdm},
        "conditions": 4, "layers": ["a"],
    }  # fmt: skip
    parameters = inspect.signature(cls).parameters.values()
    needed = {p.name: p for p in parameters if p.default is inspect.Parameter.empty}
    options = {name: known[name] for name in needed if name in known}
    if "brain" in options and cls.__name__ == "TemporalRSA":
        options["brain"] = rdm.expand(2, 4, 4)
    return options
