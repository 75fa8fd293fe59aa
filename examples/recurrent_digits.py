"""A recurrent network that looks at handwritten digits: data, model, table and picture.

Shared by `train_recurrent_digits.py` (Lightning, two processes) and `plain_loop.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

from dynmetrics import MetricSuite
from dynmetrics.core.optional import optional
from dynmetrics.temporal import (
    TemporalAccuracy,
    TemporalConfidence,
    presentation_mask,
    reaction_mask,
    shift_labels,
)
from dynmetrics.training import History
from dynmetrics.training.tables import rich_table

PATTERNS = ("1000", "1100", "1110")  # an image is shown for a quarter, a half, three quarters
T, DT, REACTION_TIME = 12, 2.0, 4.0  # timesteps; milliseconds
N_RESIDUAL = 2  # the readout sees an image two timesteps late: see RecurrentNet
NOISE = 0.5  # standard deviation in every frame, where ink is 1
RANKS = 2


def parse_options(description: str, folder: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--images", type=int, default=1797, help="of scikit-learn's 1797 digits")
    parser.add_argument("--batch-size", type=int, default=32, help="for each of the two ranks")
    parser.add_argument("--folder", type=Path, default=Path("runs") / folder)
    return parser.parse_args()


# ------------------------------------------------------------------------------------------ data


def make_datasets(n_images: int) -> tuple[TensorDataset, TensorDataset]:
    """Two thirds to train and one third to validate, each of (frames, labels)."""
    arrays = optional("sklearn.datasets", "dev").load_digits(return_X_y=True)
    images, digits = (torch.from_numpy(array[:n_images]) for array in arrays)
    images = images.float().reshape(-1, 1, 8, 8) / 16
    n_train = n_images * 2 // 3 // 2 * 2  # even, so that both ranks train on equally many
    train = present(images[:n_train], digits[:n_train])
    return train, present(images[n_train:], digits[n_train:])


def present(images: Tensor, digits: Tensor) -> TensorDataset:
    """Images (N, 1, 8, 8) unrolled over time: frames (N, T, 1, 8, 8) and labels (N, T).

    The images come in blocks of one presentation pattern each. A label holds while the image is
    shown, after the reaction time; and all labels wait for the signal to reach the readout.
    """
    patterns = torch.stack([presentation_mask(pattern, T) for pattern in PATTERNS])
    on = patterns[torch.arange(len(digits)) * len(PATTERNS) // len(digits)]
    answered = on & ~reaction_mask(on, REACTION_TIME, DT)
    labels = shift_labels(torch.where(answered, digits[:, None], -1), N_RESIDUAL)
    shown = functional.pad(on, (0, N_RESIDUAL))  # blank frames while the last signals arrive
    frames = images[:, None] * shown[:, :, None, None, None]
    noise = torch.randn(frames.shape, generator=torch.Generator().manual_seed(len(digits)))
    return TensorDataset(frames + NOISE * noise, labels)


Loader = DataLoader[tuple[Tensor, ...]]


def make_loaders(options: argparse.Namespace, rank: int) -> tuple[Loader, Loader]:
    """What one rank trains on and validates."""
    train, val = make_datasets(options.images)
    sampler: DistributedSampler[Any] = DistributedSampler(train, RANKS, rank)
    # In validation a DistributedSampler would repeat images until all ranks have equally many, and
    # they would count twice. Every rank takes every second image instead; the shares may differ.
    share = Subset(val, range(rank, len(val), RANKS))
    return (
        DataLoader(train, options.batch_size, sampler=sampler, drop_last=True),
        DataLoader(share, options.batch_size),
    )


# ----------------------------------------------------------------------------------------- model


class RecurrentNet(nn.Module):
    """Two recurrent convolutional areas and a readout; a signal crosses one layer per timestep."""

    def __init__(self) -> None:
        super().__init__()
        self.retina_to_v1 = nn.Conv2d(1, 16, 3, padding=1)
        self.v1_to_v1 = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.v1_to_v2 = nn.Conv2d(16, 32, 3, padding=1, stride=2)
        self.v2_to_v2 = nn.Conv2d(32, 32, 3, padding=1, bias=False)
        self.readout = nn.Linear(32 * 4 * 4, 10)

    def forward(self, frames: Tensor) -> Tensor:
        """Frames (B, T, 1, 8, 8) to logits (B, T, 10)."""
        v1 = frames.new_zeros(len(frames), 16, 8, 8)
        v2 = frames.new_zeros(len(frames), 32, 4, 4)
        logits = []
        for frame in frames.unbind(1):
            # From the top down: every layer receives what the one below held a timestep ago.
            logits.append(self.readout(v2.flatten(1)))
            v2 = torch.relu(self.v1_to_v2(v1) + self.v2_to_v2(v2))
            v1 = torch.relu(self.retina_to_v1(frame) + self.v1_to_v1(v1))
        return torch.stack(logits, 1)


def make_model() -> tuple[RecurrentNet, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = RecurrentNet()
    return model, torch.optim.Adam(model.parameters(), lr=2e-3)


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)


def make_suite(prefix: str | None = None) -> MetricSuite:
    return MetricSuite(
        {
            "accuracy": TemporalAccuracy(top_k=(1, 3), confidence=0.95),
            "memory": TemporalAccuracy(target="first_label", confidence=0.95),
            "confidence": TemporalConfidence(kinds=("guess",)),
        },
        prefix=prefix,
    )


# --------------------------------------------------------------------------------- table, picture

COLUMNS = ("train_loss", "val_accuracy", "val_accuracy_overall_top3", "val_confidence")


class Screen:
    """The history as it grows: a live table and a progress bar on a terminal, else plain rows."""

    def __init__(self, history: History, epochs: int) -> None:
        self.history, self.epochs = history, epochs
        self.n_shown = 0
        self.live: Any = None

    def show(self) -> None:
        """Show what is new. A live table renews itself."""
        if not sys.stdout.isatty():
            lines = self.history.table(COLUMNS, missing="blank").splitlines()
            print(*lines[self.n_shown :], sep="\n", flush=True)
            self.n_shown = len(lines)
        elif self.live is None:
            self.bar = optional("rich.progress", "table").Progress()
            self.task = self.bar.add_task("training", total=self.epochs)
            self.live = optional("rich.live", "table").Live(get_renderable=self._table_and_bar)
            self.live.start()

    def advance(self, epochs: float) -> None:
        """Move the progress bar."""
        if self.live is not None:
            self.bar.update(self.task, completed=epochs)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self.live is not None:
            self.live.stop()

    def _table_and_bar(self) -> Any:
        table = rich_table(self.history, COLUMNS, missing="blank")
        return optional("rich.console", "table").Group(table, self.bar)


def finish(history: History, folder: Path) -> None:
    """Write the history and the picture."""
    history.to_csv(folder / "history.csv")
    history.to_csv(folder / "curves.csv", form="long")
    last = [record.results for record in history if record.stage == "val"][-1]
    draw_accuracy(last, folder / "accuracy_over_time.png")
    print(
        f"\nvalidation accuracy {last['val_accuracy']:.4f}, exact: every label counts once\n"
        f"written to {folder}: history.csv, curves.csv, accuracy_over_time.png"
    )


def draw_accuracy(results: Mapping[str, Any], path: Path) -> None:
    """Accuracy over time with Wilson's interval, above the number of labels it rests on."""
    blue, vermilion, green, grey = "#0072B2", "#D55E00", "#00785A", "#4D4D4D"
    small = {"color": grey, "fontsize": 8, "ha": "center"}
    times = [DT * t for t in range(T + N_RESIDUAL)]
    figure = optional("matplotlib.figure", "plot").Figure((7.2, 4.8), layout="constrained", dpi=200)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(5, 1))

    # When the images are shown, and when no answer is asked for.
    ordinals = ("first", "second", "last")
    for ordinal, pattern in zip(ordinals, PATTERNS, strict=True):
        off = DT * int(presentation_mask(pattern, T).sum())
        top.axvspan(0, off, color="black", alpha=0.04, linewidth=0)
        top.text(off, 1.015, f"{ordinal} third off", **small)
    top.text(0, 1.015, "all images on", **small)
    arrival = DT * N_RESIDUAL
    answer = arrival + REACTION_TIME
    for start, end, text in ((0, arrival, "residual\nsteps"), (arrival, answer, "reaction\ntime")):
        top.annotate("", (start, 0.9), (end, 0.9), arrowprops={"arrowstyle": "<->", "color": grey})
        top.text((start + end) / 2, 0.915, text, **small)
    top.axhline(0.1, color=grey, linestyle=(0, (1, 2)), linewidth=1)
    top.text(times[-1], 0.115, "chance", **small)

    for name, ending, colour, marker, label in (
        ("accuracy_top1", "_top1", blue, "o-", "accuracy where an answer is asked for"),
        ("memory_accuracy", "", vermilion, "s--", "accuracy of all images at all times"),
    ):
        family, _, _ = name.partition("_")
        curve = torch.tensor(results[f"val_{name}"])
        low, high = (results[f"val_{family}_{bound}{ending}"] for bound in ("low", "high"))
        known = ~curve.isnan()
        top.fill_between(times, low, high, where=known, color=colour, alpha=0.2, linewidth=0)
        top.plot(times, curve, marker, markersize=4, color=colour, label=label)
    confidence = results["val_confidence_guess"]
    top.plot(times, confidence, "-.", linewidth=1.2, color=green, label="confidence of the guesses")
    top.set(ylim=(0, 1), ylabel="accuracy (95 % interval), confidence")
    top.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.62, 0.14))
    bottom.bar(times, results["val_accuracy_valid"], width=0.7 * DT, color=blue)
    bottom.set(xlabel="time since the onset of the image (ms)", ylabel="labels", xticks=times[::2])
    figure.align_ylabels()
    for axis in (top, bottom):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
