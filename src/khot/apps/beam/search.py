"""Beam search with a gradient, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from khot.apps.beam._nested import mapped, tensors_in
from khot.apps.beam.choice import BeamChoice, soft_best
from khot.apps.beam.step import BeamState, check_settings, normalised, soft_beam_step
from khot.kernels.availability import is_plain
from khot.relaxations._plain_arguments import check_floating, check_integer
from khot.relaxations.registry import Relaxation

__all__ = ["INTEGERS", "BeamResult", "soft_beam_search"]

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

StepFunction = Callable[[Tensor, Any], tuple[Tensor, Any]]


@dataclass(frozen=True)
class BeamResult:
    """The result of :func:`soft_beam_search`: the k best hypotheses, best first.

    Args:
        sequences: (B, k, T), the tokens of the hard choices, ``pad`` after the end.
        scores: (B, k), sums of log-probabilities, with a gradient; −inf where there is no hypothesis.
        lengths: (B, k), the number of tokens, including the end token.
        finished: (B, k), whether the end token was reached.
        states: the :class:`BeamState` after each of the T steps.
        last: the final choice among the ended hypotheses and those still running.
        vocabulary: the number of tokens V.

    Example:
        >>> table = torch.tensor([[0.1, 0.9], [0.8, 0.2]]).log()
        >>> found = soft_beam_search(lambda t, h: (table[t], h), None, 1, start=0, max_length=2)
        >>> found.sequences.tolist(), found.lengths.tolist(), found.token_weights().shape
        ([[[1, 0]]], [[2]], torch.Size([1, 2, 2]))
    """

    sequences: Tensor
    scores: Tensor
    lengths: Tensor
    finished: Tensor
    states: tuple[BeamState, ...]
    last: BeamChoice
    vocabulary: int

    def token_weights(self, rank: int = 0) -> Tensor:
        """The weight (B, T, V) of each token at each position of the hypothesis at ``rank``, differentiable.

        It is computed by following the blends back from the last step. Each position sums to 1; as the
        temperature → 0 it becomes one-hot, the token of ``sequences``.
        """
        k = self.sequences.shape[1]
        check_integer("token_weights", "rank", rank, least=0)
        if rank >= k:
            raise ValueError(f"token_weights: rank must be in 0 … {k - 1}, got {rank}")
        found = self.states[-1].ended.scores.shape[1]
        both = _back(self.last.weights[:, rank], self.last, found + k)
        ended, running = both[:, :found], both[:, found:]
        places: list[Tensor] = []
        for number, state in reversed(list(enumerate(self.states))):
            before = self.states[number - 1] if number else None
            width = k if before is not None else 1
            choice = state.choice
            assert choice is not None
            shares = (running.unsqueeze(1) @ choice.weights).squeeze(1)
            place = self._tokens(shares, choice)
            running = _back(shares, choice, width)
            if state.ended.choice is not None:
                shares = (ended.unsqueeze(1) @ state.ended.choice.weights).squeeze(1)
                place = place + self._tokens(shares, state.ended.choice)
                old = 0 if before is None else before.ended.scores.shape[1]
                both = _back(shares, state.ended.choice, old + width)
                ended, running = both[:, :old], running + both[:, old:]
            places.append(place)
        return torch.stack(places[::-1], 1)

    def _tokens(self, shares: Tensor, choice: BeamChoice) -> Tensor:
        return shares.new_zeros(len(shares), self.vocabulary).scatter_add(1, choice.tokens, shares)


def _back(shares: Tensor, choice: BeamChoice, width: int) -> Tensor:
    """Shares (B, m) of candidates, summed over their parents (B, width)."""
    return shares.new_zeros(len(shares), width).scatter_add(1, choice.parents, shares)


def soft_beam_search(
    step_fn: StepFunction,
    hidden: Any,
    k: int,
    *,
    start: int | Tensor,
    max_length: int,
    eos: int | None = None,
    pad: int | None = None,
    embedding: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    method: str | Relaxation = "softsort",
    hard: bool = False,
    shortlist: int | None = None,
    length_penalty: float = 0.0,
    **options: Any,
) -> BeamResult:
    """Beam search with a gradient: find the k best sequences of a model by soft choices.

    With ``hard=True``, or as the temperature → 0, this is ordinary beam search. It then finds the same
    sequences as ``generate`` of transformers with ``num_beams=k, early_stopping="never"`` and the same
    ``length_penalty``. Wrap it in ``torch.no_grad()`` if you only decode.

    Cost: for each step, the model on k hypotheses and O(k·(V + d)) per batch row.

    Args:
        step_fn: your model, ``(inputs, hidden) → (log_probs, hidden)``. The inputs are the last tokens
            (B, width) of the hypotheses, or, with ``embedding``, their blended embeddings (B, width, d).
            ``log_probs`` (B, width, V) are those of the next token. The width is 1 in the first step, then k.
            Whatever is the same for all hypotheses, such as an encoded input and its padding, the function
            must hold itself.
        hidden: the state of the model, tensors (B, …) in tuples, lists and dictionaries, or None. ``step_fn``
            gets them as (B, width, …). Floating-point tensors are blended, others follow the hard choice.
        k: how many hypotheses to keep.
        start: the token before the first, one for all rows or a tensor (B,).
        max_length: the largest number of steps.
        eos: the token that ends a sequence. The search stops when no running hypothesis can become one of the
            k best.
        pad: the token after the end; by default ``eos``.
        embedding: an embedding table (V, d), for a gradient through the choice of tokens.
        temperature: > 0, in nats; see :func:`soft_beam_step`.
        method: a relaxation with rows.
        hard: the exact k best forward, the relaxation's gradient backward.
        shortlist: how many continuations take part in a step, by default 4k.
        length_penalty: ended hypotheses are compared by their score divided by length to this power.
        options: further options of the method.

    Returns:
        A :class:`BeamResult`.

    Example:
        >>> table = torch.tensor([[0.1, 0.5, 0.4], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]]).log()
        >>> def step_fn(tokens, hidden):
        ...     return table[tokens], hidden  # each token depends only on the last one
        >>> found = soft_beam_search(step_fn, None, 2, start=0, max_length=3, hard=True)
        >>> found.sequences.tolist(), [round(p, 3) for p in found.scores.exp().flatten().tolist()]
        ([[[2, 2, 2], [1, 0, 1]]], [0.256, 0.15])

    Reference: Goyal, Neubig, Dyer & Berg-Kirkpatrick (2018), A Continuous Relaxation of Beam Search for
    End-to-End Training of Neural Sequence Models, arXiv:1708.00111.
    """
    name = "soft_beam_search"
    check_integer(name, "max_length", max_length)
    check_settings(name, k, eos, pad, shortlist, length_penalty)
    tokens = _first_tokens(name, start, hidden, embedding)
    inputs = tokens.unsqueeze(1) if embedding is None else embedding[tokens].unsqueeze(1)
    hidden = mapped(lambda tensor: tensor.unsqueeze(1), hidden)
    state = BeamState.start(tokens)
    states: list[BeamState] = []
    running = tokens.view(-1, 1, 1)[:, :, :0]
    ended = running[:, :0]
    settings: dict[str, Any] = {"temperature": temperature, "method": method, "hard": hard, **options}
    vocabulary = 0
    for _ in range(max_length):
        log_probs, hidden = step_fn(inputs, hidden)
        state = soft_beam_step(
            log_probs,
            state,
            k,
            eos=eos,
            pad=pad,
            shortlist=shortlist,
            length_penalty=length_penalty,
            **settings,
        )
        vocabulary = log_probs.shape[-1]
        states.append(state)
        choice = state.choice
        assert choice is not None
        both = torch.cat([ended, running], 1)
        running = _extended(running, choice)
        ended = running[:, :0] if state.ended.choice is None else _extended(both, state.ended.choice)
        if not _can_improve(state, max_length, length_penalty):
            break
        inputs = state.tokens if embedding is None else choice.embed(embedding)
        hidden = mapped(choice.blend, hidden)
    return _concluded(states, ended, running, k, length_penalty, settings, vocabulary)


def _extended(sequences: Tensor, choice: BeamChoice) -> Tensor:
    """The sequences of the hard choice, one token longer."""
    return torch.cat([choice.blend(sequences), choice.heads(choice.tokens).unsqueeze(-1)], -1)


@torch.no_grad()
def _can_improve(state: BeamState, max_length: int, length_penalty: float) -> bool:
    """Whether a running hypothesis may still end better than the worst of k ended ones, in some row."""
    longest = max_length if length_penalty > 0 else state.length
    best = state.scores[:, :1] / longest**length_penalty
    if not state.ended.scores.shape[1]:
        return bool((best > -torch.inf).any())
    worst = normalised(state.ended.scores, state.ended.lengths, length_penalty)[:, -1:]
    return bool((best > worst).any())


def _concluded(
    states: list[BeamState],
    ended: Tensor,
    running: Tensor,
    k: int,
    length_penalty: float,
    settings: dict[str, Any],
    vocabulary: int,
) -> BeamResult:
    """The best of those that ended, and of those that still ran among the best continuations."""
    state = states[-1]
    old = state.ended.scores.shape[1]
    still = torch.where(state.leading, state.scores, -torch.inf)
    sums = torch.cat([state.ended.scores.to(still.dtype), still], 1)
    lengths = torch.cat([state.ended.lengths, torch.full_like(state.tokens, state.length)], 1)
    ranking = normalised(sums, lengths, length_penalty)
    order, scores, weights = soft_best(sums, ranking, old + k, k, settings)
    last = BeamChoice(weights, order, order)
    heads = last.heads(order)
    return BeamResult(
        sequences=last.blend(torch.cat([ended, running], 1)),
        scores=scores,
        lengths=lengths.gather(1, heads),
        finished=(heads < old) & (scores > -torch.inf),
        states=tuple(states),
        last=last,
        vocabulary=vocabulary,
    )


def _first_tokens(name: str, start: int | Tensor, hidden: Any, embedding: Tensor | None) -> Tensor:
    if embedding is not None:
        check_floating(name, "embedding", embedding)
        if embedding.dim() != 2:
            raise ValueError(
                f"{name}: embedding must be a table (tokens, d), got the shape {tuple(embedding.shape)}"
            )
    tensors = tensors_in(hidden)
    sizes = {len(tensor) if tensor.dim() else 0 for tensor in tensors}
    if isinstance(start, Tensor):
        if start.dim() != 1 or start.dtype not in INTEGERS:
            raise ValueError(
                f"{name}: start must be a token or integers (B,), got {start.dtype} of {tuple(start.shape)}"
            )
        sizes.add(len(start))
        low, high = (int(end) for end in start.aminmax()) if is_plain(start) else (0, 0)
    else:
        check_integer(name, "start", start, least=0)
        low = high = int(start)
    if low < 0:
        raise ValueError(f"{name}: start must not be negative, got {low}")
    if embedding is not None and high >= len(embedding):
        raise ValueError(f"{name}: start must be in the embedding of {len(embedding)} tokens, got {high}")
    if len(sizes) > 1:
        raise ValueError(f"{name}: start and hidden must have one batch size, got {sorted(sizes)}")
    if isinstance(start, Tensor):
        return start.long()
    device = tensors[0].device if tensors else None
    return torch.full((sizes.pop() if sizes else 1,), start, device=device)
