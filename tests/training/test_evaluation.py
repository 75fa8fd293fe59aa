"""`evaluate` in a plain loop: inputs by name, models with several outputs, modes restored."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dynmetrics import Accuracy, MetricSuite, SuccessRate, TemporalAccuracy
from dynmetrics.training import evaluate
from tests.training.toy import Scores, loader


class TwoHeads(nn.Module):
    """A network with two outputs; dropout would spoil the first in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.9)

    def forward(self, x: Any) -> dict[str, Tensor]:
        scores = x["scores"] if isinstance(x, dict) else x
        return {"classifier": self.dropout(scores), "mirror": -scores}


def test_batches_of_tuples() -> None:
    data = Scores(9, 3, 0)
    batches = data.tuples(4)
    result = evaluate(nn.Identity(), batches, MetricSuite({"accuracy": TemporalAccuracy()}))
    assert float(result["accuracy"]) == pytest.approx(data.accuracy()[0], abs=1e-12)
    assert str(result).startswith("accuracy  0.")


def test_several_outputs_and_named_batches() -> None:
    data = Scores(9, 3, 0)
    model = TwoHeads().train()
    suite = MetricSuite({
        "head": TemporalAccuracy(network_output="classifier"),
        "mirror": TemporalAccuracy(network_output="mirror"),
    })  # fmt: skip
    names = {"target": "labels"}
    batches = data.tuples(4)
    result = evaluate(model, batches, suite)
    assert float(result["head"]) == pytest.approx(data.accuracy()[0], abs=1e-12)
    assert float(result["mirror"]) != float(result["head"])
    assert model.training
    assert suite["head"].update_count == 0
    single = MetricSuite({"head": TemporalAccuracy()})
    inputs = {"preds": "classifier", **names}
    by_name = evaluate(model, loader(data), single, inputs=inputs)
    assert float(by_name["head"]) == float(result["head"])


def test_missing_inputs_and_failing_models() -> None:
    batches = [(torch.eye(2), torch.tensor([0, 1]))]
    with pytest.raises(ValueError, match="inputs: expected 'success'"):
        evaluate(nn.Identity(), batches, MetricSuite([SuccessRate()]))
    with pytest.raises(ValueError, match="inputs: expected names among"):
        evaluate(nn.Identity(), batches, MetricSuite([Accuracy()]), inputs={"predz": "x"})
    broken = nn.Linear(5, 2).train()
    with pytest.raises(RuntimeError):
        evaluate(broken, batches, MetricSuite([Accuracy()]))
    assert broken.training
