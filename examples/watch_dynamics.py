"""The four pictures to look at first: accuracy, confidence, responses and latencies.

    python examples/watch_dynamics.py

Trains the demo's network in a plain loop, then measures everything in one pass over the validation
images, with one scan of the scores for all metrics that need them.
"""

from __future__ import annotations

from itertools import chain

import torch
from plain_loop import train
from recurrent_digits import DT, RANKS, make_loaders, make_model, parse_options

from dynmetrics import DecisionLatency, LayerResponse, TemporalAccuracy, TemporalConfidence
from dynmetrics.plot import plot_curve, plot_layer_responses, plot_result
from dynmetrics.temporal import row_statistics
from dynmetrics.training import ActivationRecorder

LAYERS = {"retina_to_v1": "V1", "v1_to_v2": "V2"}


def main() -> None:
    options = parse_options("Accuracy, confidence, responses and latencies over time", "dynamics")
    torch.set_num_threads(1)
    model, optimizer = make_model()
    shares = [make_loaders(options, rank) for rank in range(RANKS)]
    train_loaders, val_loaders = map(list, zip(*shares, strict=True))
    for epoch in range(1, options.epochs + 1):
        print(f"epoch {epoch}: loss {train(model, optimizer, train_loaders, epoch):.4f}")

    accuracy = TemporalAccuracy(confidence=0.95)
    confidence = TemporalConfidence(invalid="skip")
    latency = DecisionLatency()
    response = LayerResponse(measures=("response_avg",))
    with torch.inference_mode(), ActivationRecorder(model, LAYERS) as recorder:
        for frames, labels in chain(*val_loaders):
            rows = row_statistics(model(frames), labels)  # read the scores once, for all three
            for metric in (accuracy, confidence, latency):
                metric.update(rows, None)
            response.update(recorder.activations)

    options.folder.mkdir(parents=True, exist_ok=True)
    curves, sure = accuracy.compute(), confidence.compute()
    valid = curves["valid"] > 0  # the timesteps at which some image has a label
    kinds = ["guess", "label", "first_label"]
    figures = {
        "accuracy": plot_curve(curves, dt=DT, stimulus=valid, title="shaded: labels are valid"),
        "confidence": plot_curve(sure, names=kinds, dt=DT, stimulus=valid),
        "response": plot_layer_responses(response.compute(), dt=DT),
        "latency": plot_result(latency),
    }
    for name, figure in figures.items():
        figure.savefig(options.folder / f"{name}.png")
    decided = latency.compute()
    print(
        f"accuracy {float(curves['overall']):.4f}; the last answer is reached after "
        f"{DT * float(decided['mean']):.1f} ms on average, by {1 - float(decided['never']):.0%}"
    )
    print(f"written to {options.folder}: " + ", ".join(f"{name}.png" for name in figures))


if __name__ == "__main__":
    main()
