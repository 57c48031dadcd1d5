"""An autoencoder whose code is k of n units, sampled: the experiment of `khot reproduce estimators`.

The encoder gives n scores, the code is a sample of k units, the decoder gives pixels. The loss is the
negative log-likelihood of binary pixels, and, if asked for, the divergence of the code from the uniform
distribution over k-subsets, log C(n, k) minus the entropy, which only some laws have in closed form. It is at
most log C(n, k) for any law.
"""

# pyright: basic
from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from khot import hard_topk
from khot.estimators import Estimator, score_function_loss
from khot.estimators._arguments import distribution_of

__all__ = ["WITH_ENTROPY", "SubsetAutoencoder", "Task", "train"]

WITH_ENTROPY = ("conditional_poisson", "tree_pivotal")
_SCORE_FUNCTION_SAMPLES = 4


@dataclass(frozen=True)
class Task:
    """What is learned.

    Args:
        units: n, the length of the code.
        chosen: k, how many of them are 1.
        hidden: the width of encoder and decoder.
        batch: images in a step.
        steps: how many.
        divergence: whether the loss has the divergence of the code.
    """

    units: int
    chosen: int
    hidden: int
    batch: int
    steps: int
    divergence: bool


class SubsetAutoencoder(nn.Module):
    """Encoder, sampled code, decoder."""

    def __init__(self, pixels: int, task: Task, estimator: Estimator) -> None:
        super().__init__()
        self.task, self.estimator = task, estimator
        self.encoder = nn.Sequential(
            nn.Linear(pixels, task.hidden), nn.ReLU(), nn.Linear(task.hidden, task.units)
        )
        self.decoder = nn.Sequential(
            nn.Linear(task.units, task.hidden), nn.ReLU(), nn.Linear(task.hidden, pixels)
        )

    def likelihood_loss(self, code: Tensor, images: Tensor) -> Tensor:
        """−log p(image | code), in nats, for each image and each code of it."""
        logits = self.decoder(code)
        target = images.expand(logits.shape)
        return nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(-1)

    def reconstruction(self, scores: Tensor, images: Tensor) -> Tensor:
        """The mean over samples of the code, differentiable in the scores by the estimator."""
        if self.estimator.needs_losses:
            return score_function_loss(
                lambda code: self.likelihood_loss(code, images),
                scores,
                self.task.chosen,
                samples=_SCORE_FUNCTION_SAMPLES,
                **self.estimator.options,
            )
        return self.likelihood_loss(self.estimator(scores, self.task.chosen), images)

    def divergence(self, scores: Tensor) -> Tensor:
        """log C(n, k) − entropy, for laws that have one."""
        n, k = self.task.units, self.task.chosen
        made = distribution_of(scores, k, self.estimator.design)
        return math.log(math.comb(n, k)) - made.entropy()


def train(estimator: Estimator, task: Task, images: Tensor, test: Tensor, seed: int) -> dict[str, float]:
    """Train on images (N, pixels) in {0, 1} and give the mean losses on the test images, in nats.

    `sampled` is the reconstruction from a sampled code, for a relaxed estimator from a Gumbel top-k sample;
    `largest` that from the k largest scores; `divergence` is there if the design has one.
    """
    torch.manual_seed(seed)
    model = SubsetAutoencoder(images.shape[-1], task, estimator)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for _ in range(task.steps):
        batch = images[torch.randint(len(images), (task.batch,))]
        scores = model.encoder(batch)
        loss = model.reconstruction(scores, batch)
        if task.divergence:
            loss = loss + model.divergence(scores)
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        scores = model.encoder(test)
        exact = Estimator("gumbel_straight_through") if estimator.name == "relaxed_subset" else estimator
        numbers = {
            "sampled": model.likelihood_loss(exact(scores, task.chosen), test).mean().item(),
            "largest": model.likelihood_loss(hard_topk(scores, task.chosen), test).mean().item(),
        }
        if estimator.design in WITH_ENTROPY:
            numbers["divergence"] = model.divergence(scores).mean().item()
    return numbers
