r"""One step of beam search with a gradient: from k hypotheses to the k best of all their continuations.

Hypothesis i, with the sum of log-probabilities :math:`s_i`, has a continuation by each token v, with
:math:`s_{iv} = s_i + \log p(v \mid i)`. Beam search keeps the k largest, and separately those that have
ended. Here row r of a soft one-hot matrix, :func:`khot.topk_matrix`, stands for the r-th of them. The new
score, the state of the model and the embedding of the token are blends with the weights of that row, so they
have a gradient. As the temperature → 0 the rows become one-hot, and the step becomes that of beam search.

k rows over all k·V continuations would be k²V numbers. So only the best ``shortlist`` continuations take part
(4k by default), and a step takes O(k·(V + d)). With ``shortlist`` = k·V the relaxation is that of Goyal et
al., whose rows are softmaxes around the k largest scores, like those of ``"softsort"``.

Reference: Goyal, Neubig, Dyer & Berg-Kirkpatrick (2018), A Continuous Relaxation of Beam Search for
End-to-End Training of Neural Sequence Models, arXiv:1708.00111.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from khot.apps.beam.choice import BeamChoice, soft_best
from khot.relaxations._arguments import check_mask
from khot.relaxations._plain_arguments import check_floating, check_integer, is_number
from khot.relaxations.hard import ranked_indices
from khot.relaxations.registry import Relaxation

__all__ = ["BeamState", "Ended", "check_settings", "normalised", "soft_beam_step"]


class Ended(NamedTuple):
    """The best hypotheses that have ended.

    ``scores`` and ``lengths`` (B, k) are theirs; lengths include the end token. ``choice`` tells where they
    come from: its ``parents`` count first the ended hypotheses of the previous step, then the running ones.

    Example:
        >>> state = BeamState.start(torch.tensor([0]))
        >>> log_probs = torch.tensor([[[0.1, 0.6, 0.3]]]).log()
        >>> soft_beam_step(log_probs, state, 2, eos=1, hard=True).ended.scores.exp()
        tensor([[0.6000, 0.0000]])
    """

    scores: Tensor
    lengths: Tensor
    choice: BeamChoice | None = None


class BeamState(NamedTuple):
    """The hypotheses of each batch row, best first.

    ``scores`` (B, k) are the sums of log-probabilities of the running hypotheses, with a gradient; ``tokens``
    (B, k) their last tokens by the hard choice; ``length`` their number of tokens; ``leading`` (B, k) tells
    which of them are among the k best of all continuations, including those that end. ``ended`` are the best
    hypotheses that have ended. A place without a hypothesis has the score −inf. ``choice`` tells where the
    hypotheses come from.

    Example:
        >>> state = BeamState.start(torch.tensor([3, 5]))  # one hypothesis for each of two batch rows
        >>> state.scores.tolist(), state.tokens.tolist()
        ([[0.0], [0.0]], [[3], [5]])
    """

    scores: Tensor
    tokens: Tensor
    leading: Tensor
    length: int
    ended: Ended
    choice: BeamChoice | None = None

    @classmethod
    def start(cls, tokens: Tensor, dtype: torch.dtype | None = None) -> BeamState:
        """One hypothesis for each batch row, from its first token (B,)."""
        zeros = torch.zeros(len(tokens), 1, device=tokens.device, dtype=dtype)
        ended = Ended(zeros[:, :0], zeros[:, :0].long())
        return cls(zeros, tokens.unsqueeze(1), torch.ones_like(zeros, dtype=torch.bool), 0, ended)


def soft_beam_step(
    log_probs: Tensor,
    state: BeamState,
    k: int,
    *,
    eos: int | None = None,
    pad: int | None = None,
    temperature: float | Tensor = 1.0,
    method: str | Relaxation = "softsort",
    hard: bool = False,
    shortlist: int | None = None,
    length_penalty: float = 0.0,
    mask: Tensor | None = None,
    **options: Any,
) -> BeamState:
    r"""One soft step of beam search: the k best continuations of the hypotheses in ``state``.

    Cost: O(k·(V + d)) per batch row, for V tokens and a model state of size d.

    Args:
        log_probs: (B, width, V), of the next token after each hypothesis; −inf excludes a token.
        state: the hypotheses, ``width`` for each batch row: one at the start, then k.
        k: how many hypotheses to keep.
        eos: the token that ends a hypothesis. A hypothesis that ends among the k best continuations joins the
            ended ones, and the k best of these are kept. The k best others keep running.
        pad: the token after the end, by default ``eos``.
        temperature: > 0, in units of the scores: nats, or, for ended hypotheses, nats after the length
            penalty.
        method: a relaxation with rows, such as ``"softsort"`` or ``"neuralsort"``; see
            :func:`khot.topk_matrix`.
        hard: the exact k best forward, the relaxation's gradient backward.
        shortlist: how many continuations take part, at least k; by default 4k.
        length_penalty: ended hypotheses are compared by their score divided by length to this power: 0 for
            sums of log-probabilities, 1 for their means.
        mask: boolean, broadcastable to ``log_probs``, True where a token is allowed.
        options: further options of the method.

    Returns:
        A :class:`BeamState` with k hypotheses, best first. Use its ``choice`` to blend everything else that
        belongs to them.

    Example:
        >>> state = BeamState.start(torch.tensor([0]))
        >>> log_probs = torch.tensor([[[0.1, 0.6, 0.3]]]).log().requires_grad_()
        >>> state = soft_beam_step(log_probs, state, 2, temperature=0.1)
        >>> state.tokens.tolist(), [round(v, 2) for v in state.scores.exp().flatten().tolist()]
        ([[1, 2]], [0.6, 0.3])

    Reference: Goyal, Neubig, Dyer & Berg-Kirkpatrick (2018), arXiv:1708.00111.
    """
    name = "soft_beam_step"
    check_settings(name, k, eos, pad, shortlist, length_penalty)
    _check_sizes(name, log_probs, state)
    _check_tokens(name, log_probs.shape[-1], eos, pad)
    if mask is not None:
        check_mask(name, log_probs, mask)
        log_probs = log_probs.masked_fill(~mask, -math.inf)
    settings = {"temperature": temperature, "method": method, "hard": hard, **options}
    width, vocabulary = log_probs.shape[1:]
    totals = state.scores.unsqueeze(-1) + log_probs
    tokens = torch.arange(vocabulary, device=totals.device)
    runs = (totals if eos is None else totals.masked_fill(tokens == eos, -math.inf)).flatten(1)
    count = min(4 * k if shortlist is None else shortlist, width * vocabulary)
    order, scores, weights = soft_best(runs, runs, count, k, settings)
    choice = BeamChoice(weights, order // vocabulary, order % vocabulary)
    heads = choice.heads(order)
    ended, leading = state.ended, torch.ones_like(heads, dtype=torch.bool)
    if eos is not None:
        best, _ = ranked_indices(totals.flatten(1), min(k, width * vocabulary))
        leading = (heads.unsqueeze(-1) == best.unsqueeze(1)).any(-1)
        ends = torch.arange(width, device=best.device) * vocabulary + eos
        in_time = (ends.unsqueeze(-1) == best.unsqueeze(1)).any(-1)
        ending = torch.where(in_time, totals[..., eos], -math.inf)
        ended = _grown(state, ending, k, eos if pad is None else pad, eos, length_penalty, settings)
    return BeamState(scores, choice.heads(choice.tokens), leading, state.length + 1, ended, choice)


def normalised(scores: Tensor, lengths: Tensor, length_penalty: float) -> Tensor:
    """The scores by which hypotheses are compared: divided by length to the power ``length_penalty``."""
    return scores if length_penalty == 0 else scores / lengths.clamp_min(1).to(scores.dtype) ** length_penalty


def _grown(
    state: BeamState,
    ending: Tensor,
    k: int,
    pad: int,
    eos: int,
    length_penalty: float,
    settings: dict[str, Any],
) -> Ended:
    """The best k of the ended hypotheses and those that end now."""
    old, width = state.ended.scores.shape[1], ending.shape[1]
    sums = torch.cat([state.ended.scores.to(ending.dtype), ending], 1)
    new = torch.full((len(ending), width), state.length + 1, device=ending.device)
    lengths = torch.cat([state.ended.lengths, new], 1)
    ranking = normalised(sums, lengths, length_penalty)
    order, scores, weights = soft_best(sums, ranking, old + width, k, settings)
    choice = BeamChoice(weights, order, torch.where(order < old, pad, eos))
    return Ended(scores, lengths.gather(1, choice.heads(order)), choice)


def check_settings(
    name: str, k: int, eos: int | None, pad: int | None, shortlist: int | None, length_penalty: float
) -> None:
    """Check what does not depend on the model."""
    check_integer(name, "k", k)
    for argument, token in (("eos", eos), ("pad", pad)):
        if token is not None:
            check_integer(name, argument, token, least=0)
    if pad is not None and eos is None:
        raise ValueError(f"{name}: pad = {pad} has no effect without eos")
    if shortlist is not None:
        check_integer(name, "shortlist", shortlist)
        if shortlist < k:
            raise ValueError(f"{name}: shortlist must be at least k = {k}, got {shortlist}")
    if not (is_number(length_penalty) and math.isfinite(length_penalty)):
        raise ValueError(f"{name}: length_penalty must be a finite number, got {length_penalty!r}")


def _check_tokens(name: str, vocabulary: int, eos: int | None, pad: int | None) -> None:
    for argument, token in (("eos", eos), ("pad", pad)):
        if token is not None and token >= vocabulary:
            raise ValueError(f"{name}: {argument} must be a token in 0 … {vocabulary - 1}, got {token}")


def _check_sizes(name: str, log_probs: Tensor, state: BeamState) -> None:
    check_floating(name, "log_probs", log_probs)
    if not isinstance(state, BeamState):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: state must be a BeamState, got {type(state).__name__}")
    if log_probs.dim() != 3:
        raise ValueError(
            f"{name}: log_probs must have the shape (batch, hypotheses, vocabulary), "
            f"got {tuple(log_probs.shape)}"
        )
    if log_probs.shape[:2] != state.scores.shape:
        raise ValueError(
            f"{name}: log_probs must begin with the shape of the state's scores, "
            f"{tuple(state.scores.shape)}, got {tuple(log_probs.shape)}"
        )
