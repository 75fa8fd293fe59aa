"""Watch what the network represents while it learns: rank, neighbours and a linear read-out.

    python examples/watch_representation.py

After every epoch the features of the second area are streamed through RankMe and the other numbers
of embedding health, a nearest-neighbour classifier and a linear probe. Nothing but the probe's and
the neighbours' rows is kept.
"""

from __future__ import annotations

from itertools import chain

import torch
from plain_loop import train
from recurrent_digits import RANKS, Loader, make_loaders, make_model, parse_options
from torch import Tensor, nn

from dynmetrics import EmbeddingHealth, KNNAccuracy, LinearProbe, MetricSuite
from dynmetrics.temporal import first_label
from dynmetrics.training import ActivationRecorder, History

COLUMNS = ["train_loss", "val_health", "val_neighbours", "val_probe"]


def make_suite() -> MetricSuite:
    return MetricSuite(
        {
            "health": EmbeddingHealth(),
            "neighbours": KNNAccuracy(k=10, num_classes=10, capacity=2000),
            "probe": LinearProbe(num_classes=10, solver="moments"),
        },
        prefix="val_",
    )


@torch.inference_mode()
def features_of(model: nn.Module, recorder: ActivationRecorder, frames: Tensor) -> Tensor:
    """The drive of the second area (B, D), averaged over time and space."""
    model(frames)
    return recorder.activations["V2"].mean((1, -2, -1))


def watch(model: nn.Module, train_loaders: list[Loader], val_loaders: list[Loader]) -> MetricSuite:
    """A suite that has seen the features of all images."""
    suite = make_suite()
    with ActivationRecorder(model, {"v1_to_v2": "V2"}) as recorder:
        for split, loaders in (("train", train_loaders), ("test", val_loaders)):
            for frames, labels in chain(*loaders):
                digits = first_label(labels)[:, 0]
                features = features_of(model, recorder, frames)
                suite.update(features=features, target=digits, split=split)
    return suite


def main() -> None:
    options = parse_options("Rank, neighbours and read-out over training", "representation")
    torch.set_num_threads(1)
    model, optimizer = make_model()
    shares = [make_loaders(options, rank) for rank in range(RANKS)]
    train_loaders, val_loaders = map(list, zip(*shares, strict=True))
    history = History()
    history.record(watch(model, train_loaders, val_loaders).compute(), epoch=0)
    for epoch in range(1, options.epochs + 1):
        loss = train(model, optimizer, train_loaders, epoch)
        history.record({"train_loss": loss}, epoch=epoch, stage="train")
        history.record(watch(model, train_loaders, val_loaders).compute(), epoch=epoch)
        print(f"epoch {epoch} of {options.epochs}", flush=True)
    history.stop(f"max_epochs={options.epochs} completed")
    print(history.table(COLUMNS))
    history.to_csv(options.folder / "representation.csv")


if __name__ == "__main__":
    main()
