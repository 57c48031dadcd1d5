"""The network of `khot reproduce beam`: from letters to phonemes, by cross entropy or through a beam."""

# pyright: basic
from __future__ import annotations

import copy
import functools

import torch
from torch import Tensor, nn

from khot.apps.beam import soft_beam_search, soft_hamming_loss
from khot.apps.beam.search import BeamResult
from khot_bench.reproduce.cmudict_words import END, LETTERS, PAD, PHONEMES, START, spelled, words
from khot_bench.reproduce.ledger import Numbers, Settings

__all__ = ["BEAMS", "WAYS", "Spelling", "decoded", "train_spelling", "warm_start"]

BATCH, RATE, FINE_RATE, HIDDEN = 128, 3e-3, 5e-4, 128
BEAMS = (1, 3, 5)
TRAINED_BEAM = 3
TEMPERATURES = {"soft beam": 0.5}
WAYS = ("warm start", "cross entropy", "soft beam")
VOCABULARY = 3 + len(PHONEMES)


class Spelling(nn.Module):
    """A bidirectional GRU over letters, and a GRU over phonemes that attends to it."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(1 + len(LETTERS), 32)
        self.encoder = nn.GRU(32, HIDDEN // 2, batch_first=True, bidirectional=True)
        self.phonemes = nn.Embedding(VOCABULARY, 48)
        self.cell = nn.GRUCell(48 + HIDDEN, HIDDEN)
        self.out = nn.Linear(2 * HIDDEN, VOCABULARY)

    def encode(self, letters: Tensor) -> tuple[Tensor, Tensor]:
        """Letters (B, S) read, and which of them are there."""
        return self.encoder(self.letters(letters))[0], letters != PAD

    def step(self, inputs: Tensor, hidden: tuple[Tensor, Tensor], memory: Tensor, there: Tensor):
        """Embeddings (B, width, d) and a state to log-probabilities and the next state."""
        state, context = hidden
        batch, width, _ = state.shape
        state = self.cell(torch.cat([inputs, context], -1).flatten(0, 1), state.flatten(0, 1))
        state = state.view(batch, width, HIDDEN)
        scores = (state @ memory.mT / HIDDEN**0.5).masked_fill(~there.unsqueeze(1), -torch.inf)
        context = scores.softmax(-1) @ memory
        return self.out(torch.cat([state, context], -1)).log_softmax(-1), (state, context)

    def cross_entropy(self, letters: Tensor, phonemes: Tensor) -> Tensor:
        """The usual loss, with the right phonemes as inputs."""
        memory, there = self.encode(letters)
        zeros = memory.new_zeros(len(letters), 1, HIDDEN)
        hidden, loss = (zeros, zeros), memory.new_zeros(())
        inputs = torch.cat([torch.full_like(phonemes[:, :1], START), phonemes[:, :-1]], 1)
        embedded = self.phonemes(inputs)
        for place in range(int((phonemes != PAD).sum(1).max())):
            log_probs, hidden = self.step(embedded[:, place : place + 1], hidden, memory, there)
            loss = loss + nn.functional.nll_loss(
                log_probs[:, 0], phonemes[:, place], ignore_index=PAD, reduction="sum"
            )
        return loss / (phonemes != PAD).sum()

    def search(self, letters: Tensor, k: int, **settings: object) -> BeamResult:
        """The k best spellings."""
        memory, there = self.encode(letters)
        zeros = memory.new_zeros(len(letters), HIDDEN)
        return soft_beam_search(
            functools.partial(self.step, memory=memory, there=there),
            (zeros, zeros),
            k,
            start=START,
            eos=END,
            pad=PAD,
            max_length=11,
            embedding=self.phonemes.weight,
            **settings,  # pyright: ignore
        )


def _loss(model: Spelling, way: str, letters: Tensor, phonemes: Tensor) -> Tensor:
    if way != "soft beam":
        return model.cross_entropy(letters, phonemes)
    found = model.search(letters, TRAINED_BEAM, temperature=TEMPERATURES[way])
    longest = int((phonemes != PAD).sum(1).max())
    return soft_hamming_loss(found, phonemes[:, :longest], phonemes[:, :longest] != PAD)


def _train(model: Spelling, way: str, steps: int, rate: float, seed: int) -> None:
    data, generator = words()["train"], torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 50) * (1 - 0.9 * step / steps)
        rows = torch.randint(len(data.letters), (BATCH,), generator=generator)
        loss = _loss(model, way, data.letters[rows], data.phonemes[rows])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@functools.lru_cache(maxsize=1)
def warm_start(seed: int, steps: int) -> Spelling:
    """A network trained by cross entropy; the same for what follows."""
    torch.manual_seed(seed)
    model = Spelling()
    _train(model, "cross entropy", steps, RATE, seed)
    return model


def train_spelling(settings: Settings, split: str = "test") -> Numbers:
    """Errors of a network, decoded by beams of several widths."""
    model = copy.deepcopy(warm_start(settings["seed"], settings["steps"]))
    if settings["way"] != "warm start":
        _train(model, settings["way"], settings["more"], FINE_RATE, 1000 + settings["seed"])
    data = words()[split]
    numbers: Numbers = {}
    truths = [spelled(row) for row in data.phonemes.tolist()]
    for k in BEAMS:
        pairs = list(zip(decoded(model, data.letters, k), truths, strict=True))
        wrong = sum(_distance(ours, truth) for ours, truth in pairs)
        numbers[f"phonemes {k}"] = wrong / sum(len(truth) for truth in truths)
        numbers[f"words {k}"] = sum(ours != truth for ours, truth in pairs) / len(pairs)
    with torch.no_grad():
        numbers["cross entropy"] = model.cross_entropy(*data).item()
    return numbers


@torch.no_grad()
def decoded(model: Spelling, letters: Tensor, k: int) -> list[list[str]]:
    """The phonemes that beam search finds for each word."""
    return [
        spelled(row)
        for part in letters.split(500)
        for row in model.search(part, k, hard=True).sequences[:, 0].tolist()
    ]


def _distance(a: list[str], b: list[str]) -> int:
    """Levenshtein's: the least number of phonemes to be changed, put in or left out."""
    before = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        now = [i]
        for j, y in enumerate(b, 1):
            now.append(min(before[j] + 1, now[-1] + 1, before[j - 1] + (x != y)))
        before = now
    return before[-1]
