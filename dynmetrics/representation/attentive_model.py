"""The attentive classifier, and its training from one seed."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

_HIDDEN = 4
_BETAS = (0.9, 0.999)


@dataclass(frozen=True)
class Training:
    """How an attentive classifier is trained."""

    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    patience: int | None
    progress: bool


class SelfAttention(nn.Module):
    """A transformer block: attention among tokens, then an MLP, each on normalised input."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.before = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, num_heads, batch_first=True)
        self.between = nn.LayerNorm(dim)
        self.mlp = _mlp(dim)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (B, T, D)."""
        normal = self.before(tokens)
        attended, _ = self.attention(normal, normal, normal, need_weights=False)
        tokens = tokens + attended
        result: Tensor = tokens + self.mlp(self.between(tokens))
        return result


class AttentiveClassifier(nn.Module):
    """A learned query attends to frozen tokens (B, T, D); an MLP and a linear layer follow.

    With `depth` above 1, depth - 1 blocks of self-attention come first.
    """

    def __init__(self, dim: int, num_classes: int, num_heads: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(SelfAttention(dim, num_heads) for _ in range(depth - 1)))
        self.query = nn.Parameter(torch.empty(1, 1, dim))
        nn.init.trunc_normal_(self.query, std=0.02)
        self.norm_query = nn.LayerNorm(dim)
        self.norm_tokens = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, num_heads, batch_first=True)
        self.norm_mlp = nn.LayerNorm(dim)
        self.mlp = _mlp(dim)
        self.norm_head = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, C)."""
        normal = self.norm_tokens(self.blocks(tokens))
        query = self.query.expand(len(tokens), -1, -1)
        read, _ = self.attention(self.norm_query(query), normal, normal, need_weights=False)
        pooled = query + read
        pooled = pooled + self.mlp(self.norm_mlp(pooled))
        logits: Tensor = self.head(self.norm_head(pooled.squeeze(1)))
        return logits


def _mlp(dim: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, _HIDDEN * dim), nn.GELU(), nn.Linear(_HIDDEN * dim, dim))


def trained_classifier(
    tokens: Tensor,
    target: Tensor,
    held: Tensor,
    make: Callable[[], AttentiveClassifier],
    training: Training,
    generator: torch.Generator,
) -> AttentiveClassifier:
    """A classifier trained with AdamW on a one-cycle schedule, all randomness from `generator`.

    With `patience`, training ends once the loss on the rows that are `held` out (N,) has not fallen
    for so many epochs, and the weights are those of the best one.
    """
    model = _initialised(make, generator).to(tokens.device)
    fit = torch.nonzero(~held).squeeze(1)
    batches = -(-len(fit) // training.batch_size)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=training.lr, betas=_BETAS, weight_decay=training.weight_decay
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, training.lr, total_steps=max(training.epochs * batches, 2)
    )
    best, best_loss, since = copy.deepcopy(model.state_dict()), float("inf"), 0
    for epoch in range(training.epochs):
        model.train()
        order = torch.randperm(len(fit), generator=generator, device=generator.device)
        order = fit[order.to(fit.device)]
        total = 0.0
        for rows in torch.split(order, training.batch_size):
            loss = nn.functional.cross_entropy(model(tokens[rows].float()), target[rows])
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(rows)
        if training.progress:
            _show(epoch + 1, training.epochs, total / len(fit))
        if training.patience is None:
            continue
        logits = logits_of(model, tokens[held], training.batch_size)
        held_loss = float(nn.functional.cross_entropy(logits, target[held]))
        since += 1
        if held_loss < best_loss:
            best, best_loss, since = copy.deepcopy(model.state_dict()), held_loss, 0
        if since >= training.patience:
            break
    if training.progress:
        sys.stderr.write("\n")
    if training.patience is not None:
        model.load_state_dict(best)
    return model


def _initialised(
    make: Callable[[], AttentiveClassifier], generator: torch.Generator
) -> AttentiveClassifier:
    """A model whose first weights come from `generator`, leaving the global one as it was."""
    seed = int(torch.randint(2**31, (), generator=generator, device=generator.device))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def logits_of(model: nn.Module, tokens: Tensor, batch_size: int) -> Tensor:
    """The logits (N, C) of all tokens, without a graph."""
    model.eval()
    with torch.no_grad():
        return torch.cat([model(part.float()) for part in torch.split(tokens, batch_size)])


def _show(epoch: int, epochs: int, loss: float) -> None:
    done = 30 * epoch // epochs
    bar = "=" * done + " " * (30 - done)
    sys.stderr.write(f"\rattentive probe [{bar}] {epoch}/{epochs} loss {loss:.4f}")
    sys.stderr.flush()
