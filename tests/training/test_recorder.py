"""ActivationRecorder on modules called once a timestep, once a layer, and once in all."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dynmetrics.training import ActivationRecorder

T = 5


class Recurrent(nn.Module):
    """Two layers that share a nonlinearity, unrolled over T."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.v1, self.it = nn.Linear(3, 4), nn.Linear(4, 2)
        self.nonlin = nn.ReLU()
        self.cell = nn.LSTMCell(2, 2)

    def forward(self, x: Tensor, warm_up: int = 0) -> Tensor:
        state = None
        outputs = []
        for t in range(T):
            v1 = self.nonlin(self.v1(x) * (t + 1))
            it = self.nonlin(self.it(v1))
            state = self.cell(it, state)
            outputs.append(it)
        return torch.stack(outputs, 1)


def expected(model: Recurrent, x: Tensor) -> dict[str, Tensor]:
    v1 = [torch.relu(model.v1(x) * (t + 1)) for t in range(T)]
    return {"V1": torch.stack(v1, 1), "IT": torch.stack([torch.relu(model.it(v)) for v in v1], 1)}


def test_shared_module_and_module_of_every_timestep() -> None:
    model, x = Recurrent(), torch.randn(6, 3)
    layers = {"nonlin": ["V1", "IT"], "cell": "memory", "v1": "input"}
    with ActivationRecorder(model, layers) as recorder:
        for _ in range(2):
            model(x)
    for name, value in expected(model, x).items():
        torch.testing.assert_close(recorder.activations[name], value.detach())
    assert recorder.activations["memory"].shape == (6, T, 2)
    assert not any(value.requires_grad for value in recorder.activations.values())


def test_hooks_are_removed_also_after_an_error() -> None:
    model = Recurrent()
    with pytest.raises(KeyError), ActivationRecorder(model, ["it"]):
        raise KeyError
    recorder = ActivationRecorder(model, ["it"])
    recorder.attach()
    recorder.attach()
    recorder.remove()
    hooks = [h for m in model.modules() for h in (*m._forward_hooks, *m._forward_pre_hooks)]
    assert hooks == []
    model(torch.randn(2, 3))
    assert recorder.activations == {}


def test_a_failed_forward_pass_leaves_nothing_behind() -> None:
    model, x = Recurrent(), torch.randn(6, 3)
    with ActivationRecorder(model, ["it"]) as recorder:
        with pytest.raises(RuntimeError):
            model(torch.randn(6, 7))
        model(x)
        assert recorder.activations["it"].shape == (6, T, 2)


def test_reduced_on_the_fly_paused_and_output_time() -> None:
    model, x = Recurrent(), torch.randn(6, 3)
    with ActivationRecorder(model, ["v1"], reduce=lambda value: value.mean(1)) as recorder:
        model(x)
        assert recorder.activations["v1"].shape == (6, T)
    with ActivationRecorder(model, [""], time="output") as recorder:
        out = model(x)
        torch.testing.assert_close(recorder.activations[""], out.detach())


def test_under_autocast_and_ddp_names() -> None:
    model, x = Recurrent(), torch.randn(6, 3)
    with ActivationRecorder(model, ["it"]) as recorder, torch.autocast("cpu", torch.bfloat16):
        model(x)
    assert recorder.activations["it"].dtype is torch.bfloat16


def test_misuse_is_refused() -> None:
    model = Recurrent()
    for layers in (["nothing"], [], "it", {"nonlin": ["A", "A"]}):
        with pytest.raises(ValueError, match="layers: expected"):
            ActivationRecorder(model, layers)
    with pytest.raises(ValueError, match="time: expected"):
        ActivationRecorder(model, ["it"], time="sometimes")
    with pytest.raises(ValueError, match="compiled"):
        ActivationRecorder(torch.compile(model, backend="eager"), ["it"])  # type: ignore[arg-type]
    with (
        ActivationRecorder(model, {"nonlin": ["A", "B", "C"]}),
        pytest.raises(ValueError, match="multiple of 3"),
    ):
        model(torch.randn(6, 3))
    with (
        ActivationRecorder(model, ["it"], time="output"),
        pytest.raises(ValueError, match="one call"),
    ):
        model(torch.randn(6, 3))
