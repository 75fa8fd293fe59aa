"""The job of `train_recurrent_digits.py` as a plain loop in one process: the same numbers.

    python examples/plain_loop.py

A step goes over the batches that the two processes would take, and averages their gradients.
"""

from __future__ import annotations

from contextlib import closing
from itertools import chain
from typing import Any, cast

import torch
from recurrent_digits import (
    RANKS,
    Loader,
    Screen,
    finish,
    loss_of,
    make_loaders,
    make_model,
    make_suite,
    parse_options,
)
from torch import Tensor, nn
from torch.utils.data import DistributedSampler

from dynmetrics import MetricSuite
from dynmetrics.training import History


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, loaders: list[Loader], epoch: int
) -> float:
    """One epoch; the mean loss of its batches."""
    for loader in loaders:
        cast(DistributedSampler[Any], loader.sampler).set_epoch(epoch - 1)
    losses = []
    for batches in zip(*loaders, strict=True):
        optimizer.zero_grad()
        for frames, labels in batches:
            loss = loss_of(model(frames), labels)
            torch.autograd.backward(loss / RANKS)
            losses.append(loss.item())
        optimizer.step()
    return sum(losses) / len(losses)


@torch.inference_mode()
def validate(model: nn.Module, loaders: list[Loader], suite: MetricSuite) -> dict[str, Tensor]:
    """All results over all batches."""
    suite.reset()
    for frames, labels in chain(*loaders):
        suite.update(preds=model(frames), target=labels)
    return suite.compute()


def main() -> None:
    options = parse_options("The job of train_recurrent_digits.py as a plain loop", "plain")
    torch.set_num_threads(1)
    model, optimizer = make_model()
    shares = [make_loaders(options, rank) for rank in range(RANKS)]
    train_loaders, val_loaders = map(list, zip(*shares, strict=True))
    suite = make_suite(prefix="val_")
    history = History(directions=suite.higher_is_better)

    with closing(Screen(history, options.epochs)) as screen:
        results = validate(model, val_loaders, suite)
        history.record(results, epoch=0, axes=suite.axes)
        screen.show()
        for epoch in range(1, options.epochs + 1):
            loss = train(model, optimizer, train_loaders, epoch)
            results = validate(model, val_loaders, suite)
            step = epoch * len(train_loaders[0])
            history.record(results, epoch=epoch, step=step, axes=suite.axes)
            history.record({"train_loss": loss}, stage="train", epoch=epoch, step=step)
            screen.advance(epoch)
            screen.show()
        history.stop(f"max_epochs={options.epochs} completed")
    screen.show()
    finish(history, options.folder)


if __name__ == "__main__":
    main()
