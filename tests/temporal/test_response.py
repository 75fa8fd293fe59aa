"""LayerResponse under all laws, and against the golden values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from dynmetrics.core import MetricSuite, StreamingMetric
from dynmetrics.temporal import LayerResponse, layer_response
from dynmetrics.temporal.response import MEASURES, response_moments, response_rows
from tests.contract import Batch, MetricContract, assert_same
from tests.golden_cases import Case, temporal_cases
from tests.reference import response as definition
from tests.temporal.batches import refused

LAYERS = {"V1": (3, 2, 4), "IT": (5,), "head.0": (2, 3)}


def activity(seed: int = 0, *, bare: bool = False) -> list[Batch]:
    """Layers of one, two and no axes of space; T differs between layers and batches."""
    rng = np.random.default_rng(seed)
    batches: list[Batch] = []
    for b, t in ((3, 4), (1, 2), (0, 7), (5, 6), (2, 3)):
        layers = {
            name: torch.tensor(rng.normal(5, 2, (b, max(1, t - lag), *shape)))
            for lag, (name, shape) in enumerate(LAYERS.items())
        }
        target = torch.tensor(rng.integers(-1, 5, (b, t)))
        target[:, 1:] = -1 if b == 5 else target[:, 1:]
        batches.append({"activations": layers["V1"] if bare else layers, "target": target})
    batches[1]["target"] = torch.tensor([2])
    return batches


class ResponseContract(MetricContract):
    options: ClassVar[dict[str, Any]] = {}
    bare: ClassVar[bool] = False
    half_atol: ClassVar[float] = 2e-5
    atol: ClassVar[float] = 1e-9

    @property
    def depends_on_n(self) -> set[str]:  # type: ignore[override]
        return {name for name in self.make().axes if name.endswith("_std")} | {
            f"{layer}_{m}_std" for layer in LAYERS for m in MEASURES
        }

    def make(self) -> StreamingMetric:
        return LayerResponse(**self.options)

    def batches(self, seed: int = 0) -> list[Batch]:
        return activity(seed, bare=self.bare)

    def reference(self, batches: list[Batch]) -> Any:
        rows = []
        for batch in batches:
            layers = batch["activations"]
            layers = {"": layers} if isinstance(layers, Tensor) else layers
            arrays = {name: layer.double().numpy() for name, layer in layers.items()}
            rows.append({"activations": arrays, "target": batch["target"].numpy()})
        if not any(len(row["target"]) for row in rows):
            rows = []
        return definition.layer_response(rows, **self.options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"activations": torch.ones(1, 1, 2), "target": None}
        batch = {
            "activations": {name: torch.ones(1, 1, *s) for name, s in LAYERS.items()},
            "target": None,
        }
        chosen = first if self.bare else batch
        return [(LayerResponse(), LayerResponse(absolute=False), chosen)]

    def bad_inputs(self) -> list[Batch]:
        good = self.batches()[0]["activations"]
        named = {"V1": torch.ones(2, 3, 4)}
        wrong: list[Any] = [
            {}, {"V1": torch.ones(2, 3)}, {1: torch.ones(2, 3, 4)}, {"": torch.ones(2, 3, 4)},
            {"x" * 200: torch.ones(2, 3, 4)}, {"V1": np.ones((2, 3, 4))}, torch.ones(2, 3), None,
            torch.ones(2, 3, 0), {"other": torch.ones(2, 3, 4)}, torch.ones(2, 3, 4) * 1j,
            {"V1": torch.ones(2, 3, 4), "IT": torch.ones(1, 3, 4)},
            named if self.bare else torch.ones(2, 3, 4),
        ]  # fmt: skip
        bad = [{"activations": value, "target": torch.tensor([0, 1])} for value in wrong]
        if "num_classes" in self.options:
            bad += [
                {"activations": good, "target": t}
                for t in (None, torch.zeros(2), torch.ones(3) / 2)
            ]
        return bad

    def bad_options(self) -> list[Callable[[], Any]]:
        return refused(
            LayerResponse, {"measures": ()}, {"measures": "median"}, {"num_classes": 0},
            {"measures": ("response_avg", "response_avg")},
        )  # fmt: skip

    def samples(self, batch: Batch) -> int:
        return len(batch["target"])

    def piece(self, batch: Batch, start: int, stop: int) -> Batch:
        layers = batch["activations"]
        if isinstance(layers, Tensor):
            return super().piece(batch, start, stop)
        parts = {name: layer[start:stop] for name, layer in layers.items()}
        return {"activations": parts, "target": batch["target"][start:stop]}

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return lambda x: response_moments(x, MEASURES), [activity(bare=True)[0]["activations"]]


class TestLayers(ResponseContract):
    optout: ClassVar[dict[str, str]] = {
        "half_precision_inputs": "the law converts tensors alone, not mappings; see TestOneLayer",
        "other_device_is_refused": "the law moves tensors alone, not mappings; see TestOneLayer",
    }


class TestOneLayer(ResponseContract):
    bare: ClassVar[bool] = True
    options: ClassVar[dict[str, Any]] = {"details": True, "absolute": False}


class TestClassTable(ResponseContract):
    bare: ClassVar[bool] = True
    options: ClassVar[dict[str, Any]] = {
        "num_classes": 4, "details": True, "measures": ("feature_variance", "response_avg")
    }  # fmt: skip

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        batch = {"activations": torch.ones(1, 1, 3, 2, 4), "target": torch.tensor([0])}
        return [(self.make(), LayerResponse(num_classes=4), batch)]


# ---------------------------------------------------------------------------- golden values

CASES = temporal_cases("layer")
layer_case = pytest.mark.parametrize("case", CASES, ids=str)


def golden_batches(case: Case) -> list[Tensor]:
    return [torch.tensor(batch, dtype=torch.float64) for batch in case.inputs["responses"]]


def check_pooled(case: Case, result: dict[str, Tensor], prefix: str = "") -> None:
    for measure, expected in case.expected["pooled_over_samples"].items():
        case.check(result[prefix + measure], expected)


@layer_case
@pytest.mark.parametrize("route", ["given", "one by one", "random 0", "random 1", "merged"])
@pytest.mark.parametrize("layer", ["", "V1"])
def test_golden_curves(case: Case, route: str, layer: str) -> None:
    batches = golden_batches(case)
    if route != "given":
        batches = [sample[None] for batch in batches for sample in batch]
    if route.startswith(("random", "merged")):
        order = np.random.default_rng(len(route) + ord(route[-1])).permutation(len(batches))
        batches = [batches[i] for i in order]
    metrics = [LayerResponse(details=True) for _ in range(3 if route == "merged" else 1)]
    for i, batch in enumerate(batches):
        metrics[i % len(metrics)].update({layer: batch} if layer else batch)
    for other in [*metrics[1:], LayerResponse(details=True)]:
        metrics[0].merge_state(other)
    result = metrics[0].compute()
    check_pooled(case, result, f"{layer}_" if layer else "")
    n = result[f"{layer}_response_avg_n" if layer else "response_avg_n"]
    assert n.tolist() == case.expected["n"]


@layer_case
def test_golden_rows(case: Case) -> None:
    for batch, expected in zip(golden_batches(case), case.expected["per_batch"], strict=True):
        for measure, values in zip(MEASURES, response_rows(batch, MEASURES), strict=True):
            case.check(values, expected[measure])
        single = response_rows(batch.float(), MEASURES)
        case.check(single[0], expected["response_avg"])
        for b, t in np.ndindex(batch.shape[:2]):
            for measure in MEASURES:
                case.check(definition.measure_of(batch[b, t], measure), expected[measure][b][t])


@layer_case
def test_golden_curves_of_the_function(case: Case) -> None:
    batches = golden_batches(case)
    if len({batch.shape[1] for batch in batches}) == 1:
        check_pooled(case, layer_response(torch.cat(batches)))


# ---------------------------------------------------------------------------- what laws do not say


def test_moments_survive_a_large_offset() -> None:
    torch.manual_seed(0)
    metric = LayerResponse(measures=("response_avg",), details=True)
    values = torch.randn(400, 1, 1, dtype=torch.float64) * 1e-3 + 1e6
    for part in values.split(7):
        metric.update(part)
    result = metric.compute()
    torch.testing.assert_close(
        result["response_avg_std"], values.std(0).flatten(), rtol=1e-6, atol=0
    )


def test_layers_may_come_in_another_order() -> None:
    one, two = LayerResponse(), LayerResponse()
    a, b = torch.rand(2, 3, 4), torch.rand(2, 3, 5)
    one.update({"a": a, "b": b})
    one.update({"b": b, "a": a})
    two.update({"a": a, "b": b})
    assert_same(one.compute(), two.compute(), 1e-12)


def test_layers_of_others_are_not_mixed_up() -> None:
    one, two = LayerResponse(), LayerResponse()
    one.update({"V1": torch.rand(2, 3, 4)})
    two.update({"V2": torch.rand(2, 3, 4)})
    with pytest.raises(ValueError, match="activations: expected the"):
        merged(one, two).compute()
    with pytest.raises(ValueError, match=r"activations: expected the layers \['V1'\]"):
        one.update({"V2": torch.rand(2, 3, 4)})
    one.reset()
    one.update({"V2": torch.rand(2, 3, 4)})
    two.load_state_dict(one.state_dict())
    assert_same(two.compute(), one.compute(), 0.0)


def merged(one: LayerResponse, two: LayerResponse) -> LayerResponse:
    joint = copy.deepcopy(one)
    joint.merge_state(two)
    return joint


def test_a_checkpoint_brings_its_layers() -> None:
    saved, loaded = LayerResponse(), LayerResponse()
    saved.update({"IT": torch.rand(2, 3, 4), "V1": torch.rand(2, 3, 4)})
    loaded.update({"V4": torch.rand(2, 3, 4)})
    loaded.load_state_dict(saved.state_dict())
    assert next(iter(loaded.axes)) == "IT_response_avg"
    with pytest.raises(ValueError, match="the layers"):
        loaded.update({"V4": torch.rand(2, 3, 4)})


def test_the_entry_of_an_output_is_one_layer() -> None:
    suite = MetricSuite({"it": LayerResponse(network_output="IT"), "all": LayerResponse()})
    activations = {"V1": torch.rand(2, 3, 4), "IT": torch.rand(2, 3, 5)}
    suite.update(activations=activations)
    results = suite.compute()
    torch.testing.assert_close(results["it_response_std"], results["all_IT_response_std"])


def test_integer_and_half_activations() -> None:
    spikes = torch.randint(0, 2, (3, 4, 6))
    torch.testing.assert_close(
        layer_response(spikes), layer_response(spikes.double()), atol=1e-6, rtol=0, equal_nan=True
    )
    layers = {"V1": torch.randn(3, 4, 6, 2).to(torch.bfloat16)}
    torch.testing.assert_close(
        layer_response(layers), layer_response({"V1": layers["V1"].double()}), atol=2e-6, rtol=0
    )


def test_absolute_values_do_not_touch_variances() -> None:
    x = torch.randn(4, 3, 5, 6, dtype=torch.float64)
    make = partial(layer_response, x)
    signed, absolute = make(absolute=False), make(absolute=True)
    for measure in ("spatial_variance", "feature_variance"):
        assert torch.equal(signed[measure], absolute[measure])
    torch.testing.assert_close(absolute["response_avg"], x.abs().mean((0, 2, 3)))
    torch.testing.assert_close(signed["response_avg"], x.mean((0, 2, 3)))
