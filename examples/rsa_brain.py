"""A recurrent network's layers against a brain, at every epoch of its training.

    python examples/rsa_brain.py --brain target.npz --key IT_RDMs --stimuli stimuli.npz
    python examples/rsa_brain.py

The stimuli are an array `images` (K, H, W) or (K, H, W, 3) of an npz file, in the order of the
brain's conditions; the brain's own file will do if it has them. Without a brain the targets are two
models of the demo's digits: their pixels and their categories. Writes a table of layers by targets
and a map of the network's time by the brain's as pictures.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import torch
from recurrent_digits import T, loss_of, make_datasets, make_model
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from dynmetrics import MetricSuite
from dynmetrics.core.optional import optional
from dynmetrics.plot import plot_scores, plot_temporal_rsa
from dynmetrics.rsa import BrainRDMs, LayerRSA, TemporalRSA, load_brain_rdms, rdm
from dynmetrics.training import ActivationRecorder

LAYERS = {"retina_to_v1": "V1 input", "v1_to_v1": "V1", "v1_to_v2": "V2 input", "v2_to_v2": "V2"}
PER_DIGIT = 6
MORPH = 6


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--brain", type=Path, help="MATLAB, npy, npz, pt or HDF5 file of RDMs")
    parser.add_argument("--key", nargs="*", help="the entries to read, one target each")
    parser.add_argument("--stimuli", type=Path, help="npz file with the entry images")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--images", type=int, default=1797, help="of scikit-learn's 1797 digits")
    parser.add_argument("--folder", type=Path, default=Path("runs/rsa_brain"))
    return parser.parse_args()


def of_the_brain(options: argparse.Namespace) -> tuple[Tensor, dict[str, BrainRDMs], str]:
    """Stimuli, targets and recipe from files."""
    numpy = optional("numpy", "dev")
    with numpy.load(options.stimuli or options.brain, allow_pickle=False) as archive:
        images = torch.from_numpy(archive["images"]).float()
    images = images.mean(-1) if images.ndim == 4 else images
    small = functional.adaptive_avg_pool2d(images.unsqueeze(1), 8)
    brains = [load_brain_rdms(options.brain, key) for key in options.key or [None]]
    several = all(brain.rdms.ndim > 2 for brain in brains)
    return small / small.max(), {b.name: b for b in brains}, "algonauts2019" if several else "none"


def of_the_digits(n_images: int) -> tuple[Tensor, dict[str, BrainRDMs], str]:
    """Some digits of each class; what they look like and what they are, as model RDMs."""
    arrays = optional("sklearn.datasets", "dev").load_digits(return_X_y=True)
    images, digits = (torch.from_numpy(array[:n_images]) for array in arrays)
    chosen = torch.cat([(digits == d).nonzero()[:PER_DIGIT, 0] for d in range(10)])
    images, digits = images[chosen].float().reshape(-1, 1, 8, 8) / 16, digits[chosen]
    pixels = rdm(images)
    categories = (digits.unsqueeze(0) != digits.unsqueeze(1)).to(torch.float64)
    # A brain that first holds what a digit looks like, and later what it is.
    shares = torch.linspace(0, 1, MORPH).view(-1, 1, 1)
    morph = (1 - shares) * pixels / pixels.mean() + shares * categories
    targets = {"pixels": pixels, "categories": categories, "one to the other": morph.unsqueeze(0)}
    return images, {name: BrainRDMs(rdms, name=name) for name, rdms in targets.items()}, "none"


def train(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any]) -> None:
    for frames, labels in loader:
        optimizer.zero_grad()
        torch.autograd.backward(loss_of(model(frames), labels))
        optimizer.step()


@torch.inference_mode()
def probe(model: nn.Module, stimuli: Tensor, suite: MetricSuite) -> dict[str, Tensor]:
    """Show every stimulus for T timesteps, in batches, and compare what the layers hold."""
    suite.reset()
    with ActivationRecorder(model, LAYERS) as recorder:
        for rows in torch.split(torch.randperm(len(stimuli)), 16):
            model(stimuli[rows].unsqueeze(1).expand(-1, T, -1, -1, -1))
            outputs = {**recorder.activations}
            mean = {layer: value.mean(1) for layer, value in outputs.items()}
            suite["layers"].update(mean, rows)
            suite["time"].update(outputs, rows)
    return suite.compute()


def show(epoch: int, table: Tensor, targets: list[str], best: dict[str, str | None]) -> None:
    if epoch == 0:
        print("epoch  layer     " + "".join(f"{name:>18}" for name in targets))
    for layer, row in zip(LAYERS.values(), table.tolist(), strict=True):
        marks = ["*" if best[name] == layer else " " for name in targets]
        cells = [f"{value:17.2f}{mark}" for value, mark in zip(row, marks, strict=True)]
        print(f"{epoch:5d}  {layer:10}" + "".join(cells), flush=True)


def main() -> None:
    options = parse_options()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    if options.brain is None:
        stimuli, targets, recipe = of_the_digits(options.images)
    else:
        stimuli, targets, recipe = of_the_brain(options)
    model, optimizer = make_model()
    loader = DataLoader(make_datasets(options.images)[0], 32, shuffle=True)
    timed = list(targets.values())[-1]
    layers = LayerRSA(layers=list(LAYERS.values()), targets=targets, recipe=recipe)
    over_time = TemporalRSA(brain=timed, network_output="V2", recipe=recipe)
    suite = MetricSuite({"layers": layers, "time": over_time})

    # Before the signal arrives, V2 is the same for every stimulus, and its RDM is undefined.
    warnings.filterwarnings("ignore", message=".*conditions without a")
    for epoch in range(options.epochs + 1):
        if epoch:
            train(model, optimizer, loader)
        results = probe(model, stimuli, suite)
        show(epoch, results["layers_score"], list(targets), layers.best())

    figure = plot_scores(
        results["layers_score"], rows=list(LAYERS.values()), columns=list(targets),
        title=f"score in percent ({recipe}), epoch {options.epochs}",
    )  # fmt: skip
    figure.savefig(options.folder / "layers_by_targets.png")
    figure = plot_temporal_rsa(results["time_rho"], times=timed.times, title=f"V2, {timed.name}")
    figure.savefig(options.folder / "model_by_brain_time.png")
    print(f"written to {options.folder}: layers_by_targets.png, model_by_brain_time.png")


if __name__ == "__main__":
    main()
