"""Vision transformers with the attributes of timm: ``blocks[i].attn.qkv``, ``norm1``, ``norm2``, ``mlp``."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from khot.vision.tokens._block import Architecture, ReducedBlock, attention_with_bias
from khot.vision.tokens.reduction import Attention

__all__ = ["TimmBlock", "describe_timm"]

_PARTS = ("norm1", "attn", "norm2", "mlp")


def describe_timm(model: nn.Module) -> Architecture | None:
    """The structure of the model, or None if it does not have these names."""
    found = getattr(model, "blocks", None)
    if not isinstance(found, nn.Sequential | nn.ModuleList) or not len(found):
        return None
    blocks: list[Any] = list(found)
    if any(not hasattr(block, part) for block in blocks for part in _PARTS):
        return None
    if any(not isinstance(getattr(block.attn, "qkv", None), nn.Linear) for block in blocks):
        return None
    has_cls = getattr(model, "cls_token", None) is not None
    prefix = int(getattr(model, "num_prefix_tokens", has_cls))
    return Architecture(blocks, prefix, has_cls, int(blocks[0].attn.qkv.in_features), TimmBlock)


class TimmBlock(ReducedBlock):
    """A pre-norm block, with layer scale and stochastic depth if the block has them."""

    def projections(self) -> dict[str, nn.Module]:
        """One projection for queries, keys and values."""
        block: Any = self
        return {"qkv": block.attn.qkv}

    def attended(self, x: Tensor, bias: Tensor | None, further: dict[str, Any]) -> Tensor:
        """With a bias: the same parts with fused attention."""
        block: Any = self
        x = block.norm1(x)
        x = block.attn(x) if bias is None else _with_bias(block.attn, x, bias)
        return _scaled_and_dropped(block, x, "1")

    def transformed(self, x: Tensor) -> Tensor:
        """The MLP."""
        block: Any = self
        return _scaled_and_dropped(block, block.mlp(block.norm2(x)), "2")

    def queries_and_keys(self, captured: dict[str, Tensor], rows: slice) -> Attention:
        """Queries and keys, normalised if the attention normalises them."""
        block: Any = self
        queries, keys, _ = _heads(block.attn, captured["qkv"], rows)
        return Attention(queries, keys, float(block.attn.scale))

    def given_mask(self, inputs: tuple[Any, ...], further: dict[str, Any]) -> Tensor | None:
        """The argument ``attn_mask``."""
        unknown = [name for name in further if name not in ("attn_mask", "is_causal")]
        if unknown or len(inputs) > 1:
            raise TypeError(
                f"reduce_tokens: blocks that are given {unknown or 'further inputs'} are not supported"
            )
        return further.get("attn_mask", inputs[0] if inputs else None)


def _scaled_and_dropped(block: Any, x: Tensor, number: str) -> Tensor:
    """Layer scale and stochastic depth, by the names of new and of old versions."""
    scale = getattr(block, f"ls{number}", None)
    drop = getattr(block, f"drop_path{number}", None) or getattr(block, "drop_path", None)
    x = x if scale is None else scale(x)
    return x if drop is None else drop(x)


def _heads(attn: Any, qkv: Tensor, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (these rows only), keys and values, (B, H, N, d)."""
    batch, count, width = qkv.shape
    split = qkv.reshape(batch, count, 3, attn.num_heads, width // (3 * attn.num_heads))
    queries, keys, values = split.permute(2, 0, 3, 1, 4).unbind(0)
    queries = queries[:, :, rows]
    if getattr(attn, "q_norm", None) is not None:
        queries = attn.q_norm(queries)
    if getattr(attn, "k_norm", None) is not None:
        keys = attn.k_norm(keys)
    return queries, keys, values


def _with_bias(attn: Any, x: Tensor, bias: Tensor) -> Tensor:
    queries, keys, values = _heads(attn, attn.qkv(x), slice(None))
    drop: Any = getattr(attn, "attn_drop", None)
    dropout = float(drop.p) if isinstance(drop, nn.Dropout) and attn.training else 0.0
    x = attention_with_bias(queries, keys, values, bias, float(attn.scale), dropout)
    for name in ("norm", "proj", "proj_drop"):
        part: Any = getattr(attn, name, None)
        x = x if part is None else part(x)
    return x
