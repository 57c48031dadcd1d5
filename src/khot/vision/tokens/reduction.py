"""The state of token reduction during a forward pass, and a record of the kept tokens."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from khot.estimators import Estimator
from khot.kernels.availability import is_exporting
from khot.relaxations import select, topk
from khot.relaxations.hard import Order, gathered
from khot.relaxations.registry import Relaxation, get
from khot.relaxations.straight_through import straight_through
from khot.vision.tokens._keeping import Kept, kept_hard, kept_sample, left_over
from khot.vision.tokens._merging import merge
from khot.vision.tokens._scores import log_attention, masked_out

__all__ = ["Attention", "Flow", "Mode", "TokenReduction"]

Mode = Literal["hard", "soft", "straight_through", "sampled", "merge"]


@dataclass
class Attention:
    """Queries (B, H, N, d) of a block, or (B, H, 1, d) of CLS if it exists; keys (B, H, N, d); scale."""

    queries: Tensor
    keys: Tensor
    scale: float


@dataclass
class Flow:
    """The state of a forward pass. All fields except ``patches`` describe the current tokens without prefix.

    ``indices`` (B, n): the original patch of each token (−1: none); ``log_bias`` (B, n): the bias of its
    keys, log-weights of a soft selection or log-sizes of merged tokens; ``valid`` (B, n): False for padding;
    ``masked_by_model``: the model itself passes the mask to the blocks, until tokens are removed.
    """

    patches: int
    indices: Tensor
    log_bias: Tensor | None = None
    valid: Tensor | None = None
    masked_by_model: bool = False
    kept: tuple[Tensor, ...] = ()
    lengths: tuple[int, ...] = ()


class TokenReduction(nn.Module):
    """The result of :func:`khot.vision.reduce_tokens`, also available as ``model.token_reduction``.

    Attributes:
        kept: after a forward pass, the indices (B, k) of the patches kept by each stage; −1 stands for a
            fused token or for padding. For ``"merge"``, the patches into which others were merged.
        tokens_per_stage: the number of tokens after each stage, without the prefix (CLS).
        mode: the mode given to :func:`khot.vision.reduce_tokens`; there is also ``method``.
        temperature: the temperature of the method. You can change it during training, for example with
            :class:`khot.schedules.TemperatureScheduler`.
        rates: the share of patches that each stage keeps.
        locations: the blocks of the stages.

    Example:
        >>> from khot.vision import VisionTransformer, preset, reduce_tokens
        >>> reduction = reduce_tokens(VisionTransformer(preset("digits", model="vit")), 0.5, locations=(1,))
        >>> reduction.rates, reduction.locations, reduction.mode
        ((0.5,), (1,), 'straight_through')
    """

    def __init__(
        self,
        rates: tuple[float, ...],
        locations: tuple[int, ...],
        mode: Mode,
        *,
        method: str | Relaxation,
        temperature: float,
        options: dict[str, Any],
        order: Order,
        fuse: bool,
        estimator: Estimator | None,
        generator: torch.Generator | None,
        num_prefix_tokens: int,
        has_cls: bool,
    ) -> None:
        super().__init__()
        self.rates = rates
        self.locations = locations
        self.mode: Mode = mode
        self.method = method
        self.temperature = temperature
        self.options = options
        self.order: Order = order
        self.fuse = fuse
        self.estimator = estimator
        self.generator = generator
        self.num_prefix_tokens = num_prefix_tokens
        self.has_cls = has_cls
        self.kept: tuple[Tensor, ...] = ()
        self.tokens_per_stage: tuple[int, ...] = ()
        self.flow: Flow | None = None
        self._padding: Tensor | None = None

    def extra_repr(self) -> str:
        """Show the settings."""
        rates = ", ".join(f"{rate:g}" for rate in self.rates)
        return f"mode={self.mode!r}, rates=({rates}), locations={self.locations}"

    @contextlib.contextmanager
    def padding(self, mask: Tensor) -> Generator[None]:
        """A context in which patches with ``mask`` False are padding: not attended to, not kept.

        If fewer patches are real than should be kept, the remaining places are padding too.

        Args:
            mask: boolean, one entry for each patch of each image.
        """
        if mask.dtype != torch.bool or mask.dim() != 2:
            raise ValueError(
                "padding: mask must be boolean of shape (batch, patches), "
                f"got {mask.dtype} {tuple(mask.shape)}"
            )
        self._padding = mask
        try:
            yield
        finally:
            self._padding = None

    def begin(self, x: Tensor, valid: Tensor | None) -> Flow:
        """Start a forward pass, before the first block; ``valid`` (B, N) comes from the model's own mask."""
        patches = x.shape[1] - self.num_prefix_tokens
        flow = Flow(patches, torch.arange(patches, device=x.device).expand(x.shape[0], patches))
        if self._padding is not None:
            if self._padding.shape != (x.shape[0], patches):
                raise ValueError(
                    f"padding: mask must have the shape (batch, patches) = {(x.shape[0], patches)}, "
                    f"got {tuple(self._padding.shape)}"
                )
            flow.valid = self._padding
        elif valid is not None:
            flow.valid = valid[:, self.num_prefix_tokens :]
            flow.masked_by_model = True
        self.flow = flow
        return flow

    def count(self, stage: int, patches: int) -> int:
        """How many tokens stage number ``stage`` keeps of ``patches`` initial patches; at least 1."""
        return max(1, math.floor(self.rates[stage] * patches + 1e-9))

    def key_bias(self, flow: Flow, dtype: torch.dtype) -> Tensor | None:
        """The bias added to the attention logits of each key, (B, N) with the prefix, or None."""
        bias = flow.log_bias
        if flow.valid is not None:
            bias = torch.where(flow.valid, 0.0 if bias is None else bias, masked_out(dtype))
        return None if bias is None else pad(bias.to(dtype), (self.num_prefix_tokens, 0))

    def reduce(self, x: Tensor, stage: int, flow: Flow, attention: Attention) -> Tensor:
        """The tokens (B, N, C) that remain after this stage."""
        k = self.count(stage, flow.patches)
        prefix, tokens = x[:, : self.num_prefix_tokens], x[:, self.num_prefix_tokens :]
        flow.masked_by_model = False
        if self.mode == "merge":
            tokens = self._merged(tokens, k, flow, attention)
        else:
            bias = self.key_bias(flow, torch.promote_types(x.dtype, torch.float32))
            scores = log_attention(attention.queries, attention.keys, attention.scale, bias, self.has_cls)
            scores = scores[:, self.num_prefix_tokens :]
            if flow.valid is not None:
                scores = torch.where(flow.valid, scores, -math.inf)
            if self.training and self.keeps_all_while_training:
                self._weigh(scores, k, flow)
            else:
                tokens = self._kept(tokens, scores, k, flow)
        flow.lengths += (flow.kept[-1].shape[1] + self.fuse,)
        return torch.cat([prefix, tokens], 1)

    def finish(self, x: Tensor, flow: Flow) -> Tensor:
        """After the last block: cut a soft selection to as many tokens as a hard one, and record ``kept``."""
        if flow.log_bias is not None and self.mode == "soft" and flow.kept:
            p = self.num_prefix_tokens
            indices = flow.kept[-1]
            weights = flow.log_bias.exp().gather(1, indices.clamp_min(0)).unsqueeze(-1).to(x.dtype)
            tokens = gathered(x[:, p:], indices.clamp_min(0), indices >= 0) * straight_through(
                weights, torch.ones_like(weights)
            )
            x = torch.cat([x[:, :p], tokens], 1)
        if not is_exporting():
            self.kept = flow.kept
            self.tokens_per_stage = flow.lengths
        self.flow = None
        return x

    @property
    def reads_temperature(self) -> bool:
        """Whether the mode uses the temperature, so that a schedule has an effect."""
        return self.mode not in ("hard", "merge")

    @property
    def keeps_all_while_training(self) -> bool:
        """Whether all tokens stay in training, with their weights in the attention."""
        return self.mode == "soft" and get(self.method).matrix is None

    def _kept(self, tokens: Tensor, scores: Tensor, k: int, flow: Flow) -> Tensor:
        chosen, indices = self._select(tokens, scores, k)
        patch = flow.indices.gather(1, indices.clamp_min(0))
        flow.indices = torch.where(indices >= 0, patch, -1)
        if flow.valid is not None:
            flow.valid = indices >= 0
        flow.kept += (flow.indices,)
        if self.fuse:
            chosen = torch.cat([chosen, left_over(tokens, scores, indices)], 1)
            flow.indices = pad(flow.indices, (0, 1), value=-1)
            flow.valid = None if flow.valid is None else pad(flow.valid, (0, 1), value=True)
        return chosen

    def _select(self, tokens: Tensor, scores: Tensor, k: int) -> Kept:
        if not self.training or self.mode == "hard":
            return kept_hard(tokens, scores, k, self.order)
        if self.mode == "sampled":
            return kept_sample(tokens, scores / self.temperature, k, self.order, self._draw)
        chosen = select(
            tokens,
            scores,
            k,
            self.method,
            temperature=self.temperature,
            hard=self.mode != "soft",
            order=self.order,
            **self.options,
        )
        return Kept(chosen.values, chosen.indices)

    def _draw(self, scores: Tensor, k: int) -> Tensor:
        assert self.estimator is not None
        return self.estimator(scores, k, generator=self.generator)

    def _weigh(self, scores: Tensor, k: int, flow: Flow) -> None:
        """Keep all tokens, with log-weights that add up from stage to stage."""
        weights = topk(scores, k, self.method, temperature=self.temperature, **self.options)
        logarithms = weights.clamp_min(torch.finfo(weights.dtype).tiny).log()
        flow.log_bias = logarithms if flow.log_bias is None else flow.log_bias + logarithms
        flow.kept += (kept_hard(scores.unsqueeze(-1), scores, k, self.order).indices,)

    def _merged(self, tokens: Tensor, k: int, flow: Flow, attention: Attention) -> Tensor:
        if flow.log_bias is not None:
            sizes = flow.log_bias.exp().round()
        else:
            sizes = torch.ones(tokens.shape[:2], device=tokens.device)
        if flow.valid is not None:
            sizes = torch.where(flow.valid, sizes, 0)
        keys = attention.keys.mean(1)[:, self.num_prefix_tokens :]
        tokens, sizes, indices = merge(tokens, keys, sizes, k)
        flow.log_bias = sizes.clamp_min(1).log()
        flow.valid = None if flow.valid is None else sizes > 0
        flow.indices = torch.where(sizes > 0, flow.indices.gather(1, indices), -1)
        flow.kept += (flow.indices,)
        return tokens
