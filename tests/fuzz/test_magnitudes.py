"""Numbers in float32, of any magnitude, have the value that they have in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.contract import Batch, MetricContract, converted, fed, quietly
from tests.fuzz.families import CONTRACTS, EXAMPLES, law_of, name_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")

campaign = settings(
    max_examples=2 * EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

LARGEST = {
    # Squares of activations leave float32.
    "LayerResponse": 9,
    # A data range is fixed, far from which these say no more than "much worse" or "the same".
    "PSNR": 9, "SSIM": 4,
}  # fmt: skip
"""Up to which power of ten, and down to its inverse, where it is less than 30."""


@pytest.mark.parametrize("contract", CONTRACTS, ids=name_of)
@campaign
@given(share=st.sampled_from((-1.0, -0.6, 0.6, 1.0)))
def test_a_scale_in_single_precision(contract: type[MetricContract], share: float) -> None:
    law = law_of(contract)
    largest = LARGEST.get(type(law.make()).__name__, 30)
    single = [_scaled(batch, 10.0 ** round(share * largest)) for batch in law.batches()]
    double = [converted(batch, torch.float64) for batch in single]
    ours, expected = _result(law, single), _result(law, double)
    assert isinstance(ours, str) == isinstance(expected, str), (ours, expected)
    if isinstance(expected, str):
        return
    for name, value in expected.items():
        right = value.double().numpy()
        known = np.abs(right[np.isfinite(right)])
        # What is constant has a spread of rounding alone.
        scale = max(float(known.max(initial=0.0)), 1e-9 if name.endswith("_std") else 0.0)
        np.testing.assert_allclose(
            ours[name].double().numpy(), right, rtol=1e-3, atol=1e-3 * scale, err_msg=name
        )


def _scaled(batch: Batch, factor: float) -> Batch:
    return {
        name: (value.double() * factor).float()
        if isinstance(value, Tensor) and value.is_floating_point()
        else value
        for name, value in batch.items()
    }


def _result(law: MetricContract, batches: list[Batch]) -> Any:
    """The entries of the result, or the text of the error."""
    try:
        result = quietly(fed(law.make(), batches).compute)
    except ValueError as error:
        return str(error)
    return result if isinstance(result, dict) else {"": result}
