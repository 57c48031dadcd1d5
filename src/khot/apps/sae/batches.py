"""Shuffled batches from a folder of activations, with bounded memory and no state except the step number.

An epoch visits short runs of neighbouring rows in random order; some thousand rows at a time are in memory
and shuffled again. The rows of a step depend only on the seed and the step number, so a run that was stopped
resumes with exactly the batches it would have had.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from khot.apps.sae.activations import ActivationStore
from khot.relaxations._plain_arguments import check_integer

__all__ = ["ShuffledActivations"]

_RUN = 16  # rows that are read together


class ShuffledActivations:
    """Batches of activations in random order, indexed by the step number.

    Cost: ``buffer_rows`` rows in memory.

    Args:
        store: the activations.
        batch_size: rows per batch.
        seed: the seed of the order.
        buffer_rows: how many rows are in memory at once; at least one batch.

    Example:
        >>> import tempfile
        >>> from khot.apps.sae import collect_activations
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8))
        >>> store = collect_activations(network, "0", torch.randn(5, 20, 4), tempfile.mkdtemp())
        >>> batches = ShuffledActivations(store, batch_size=10)
        >>> batches.steps_per_epoch, batches[7].shape
        (10, torch.Size([10, 8]))
    """

    def __init__(
        self, store: ActivationStore, batch_size: int, *, seed: int = 0, buffer_rows: int = 1 << 17
    ) -> None:
        check_integer("ShuffledActivations", "batch_size", batch_size)
        check_integer("ShuffledActivations", "buffer_rows", buffer_rows)
        check_integer("ShuffledActivations", "seed", seed, least=0)
        if not 1 <= batch_size <= len(store):
            raise ValueError(f"ShuffledActivations: batch_size must be in 1 … {len(store)}, got {batch_size}")
        if buffer_rows < batch_size:
            raise ValueError(f"ShuffledActivations: buffer_rows must be ≥ batch_size, got {buffer_rows}")
        self.store, self.batch_size, self.seed = store, batch_size, seed
        self.batches_at_once = buffer_rows // batch_size
        self.steps_per_epoch = len(store) // batch_size
        self._epoch = -1
        self._order: NDArray[np.int64] = np.empty(0, np.int64)
        self._part = (-1, -1)
        self._buffer = torch.empty(0, store.d)

    def __getitem__(self, step: int) -> Tensor:
        """The batch (batch_size, d), float32, of a step counted from 0 over all epochs."""
        epoch, inside = divmod(step, self.steps_per_epoch)
        part, place = divmod(inside, self.batches_at_once)
        if self._part != (epoch, part):
            self._buffer = self._read(epoch, part)
            self._part = (epoch, part)
        return self._buffer[place * self.batch_size : (place + 1) * self.batch_size]

    def _read(self, epoch: int, part: int) -> Tensor:
        if epoch != self._epoch:
            runs = np.arange(0, len(self.store), _RUN)
            np.random.default_rng([self.seed, epoch]).shuffle(runs)
            order = np.ravel(runs[:, None] + np.arange(_RUN))
            self._order, self._epoch = order[order < len(self.store)], epoch
        size = self.batches_at_once * self.batch_size
        rows = self._order[part * size : (part + 1) * size]
        vectors = self.store.read(rows)
        mixed = np.random.default_rng([self.seed, epoch, part + 1]).permutation(len(vectors))
        return vectors[torch.as_tensor(mixed)]
