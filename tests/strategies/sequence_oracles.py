"""Sequence models whose next token depends on the whole prefix, and searches of them in plain Python."""

import itertools
import math

import torch
from torch import nn


class Recurrent(nn.Module):
    """An embedding, a cell of tanh, an output: log-probabilities of the next token."""

    def __init__(self, vocabulary: int, size: int = 6, seed: int = 0, sharpness: float = 2.0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = nn.Parameter(torch.randn(vocabulary, size, dtype=torch.float64))
        self.cell = nn.Parameter(torch.randn(size, size, dtype=torch.float64) / size**0.5)
        self.out = nn.Parameter(sharpness * torch.randn(size, vocabulary, dtype=torch.float64))

    def start(self, batch: int = 1) -> torch.Tensor:
        generator = torch.Generator().manual_seed(batch)
        return torch.randn(batch, self.cell.shape[0], dtype=torch.float64, generator=generator)

    def embedded_step(self, inputs, hidden):
        hidden = torch.tanh(hidden @ self.cell + inputs)
        return (hidden @ self.out).log_softmax(-1), hidden

    def token_step(self, tokens, hidden):
        return self.embedded_step(self.embedding[tokens], hidden)

    @torch.no_grad()
    def continuations(self, prefix: list[int], hidden: torch.Tensor) -> list[float]:
        """Log-probabilities after a prefix, computed from its beginning."""
        for token in prefix:
            log_probs, hidden = self.token_step(torch.tensor(token), hidden)
        return log_probs.tolist()


def exhaustive(model, hidden, start, eos, max_length):
    """All sequences that end by ``eos`` or have the largest length, with their scores, best first."""
    vocabulary = len(model.embedding)
    found = []
    for length in range(1, max_length + 1):
        for tokens in itertools.product(range(vocabulary), repeat=length):
            if eos in tokens[:-1] or (tokens[-1] != eos and length < max_length):
                continue
            total = sum(
                model.continuations([start, *tokens[:i]], hidden)[token] for i, token in enumerate(tokens)
            )
            found.append((total, list(tokens)))
    return sorted(found, key=lambda pair: -pair[0])


def beam_search(model, hidden, start, eos, max_length, k, length_penalty=0.0):
    """Beam search over lists. What ends among the best k is put aside; the k best others go on."""

    def ranking(hypothesis):
        return hypothesis[0] / len(hypothesis[1]) ** length_penalty

    running, ended = [(0.0, [])], []
    for length in range(1, max_length + 1):
        grown = [
            (score + log_prob, [*tokens, token])
            for score, tokens in running
            for token, log_prob in enumerate(model.continuations([start, *tokens], hidden))
            if log_prob > -math.inf
        ]
        grown.sort(key=lambda pair: -pair[0])
        ended += [(score, tokens) for score, tokens in grown[:k] if tokens[-1] == eos or length == max_length]
        running = [(score, tokens) for score, tokens in grown if tokens[-1] != eos][:k]
    return sorted(ended, key=lambda pair: -ranking(pair))[:k]
