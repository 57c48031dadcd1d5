"""Vision transformers with the names of transformers.

Since version 5: ``layers[i].attention.q_proj``; before: ``encoder.layer[i].attention.attention.query``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from khot.vision.tokens.block import Architecture, ReducedBlock, attention_with_bias
from khot.vision.tokens.reduction import Attention

__all__ = ["HuggingFaceBlock", "OldHuggingFaceBlock", "describe_huggingface"]


def describe_huggingface(model: nn.Module) -> Architecture | None:
    """What the model is, or None if it has not these names."""
    base: Any = getattr(model, "base_model", model)
    embeddings: Any = getattr(base, "embeddings", None)
    new: Any = getattr(base, "layers", None)
    old: Any = getattr(getattr(base, "encoder", None), "layer", None)
    if embeddings is None or not hasattr(embeddings, "patch_embeddings"):
        return None
    for layers, path, kind in (
        (new, "attention.q_proj", HuggingFaceBlock),
        (old, "attention.attention.query", OldHuggingFaceBlock),
    ):
        if isinstance(layers, nn.ModuleList) and len(layers) and _has(layers[0], path):
            width: Any = layers[0].get_submodule(path).in_features
            positions: Any = embeddings.position_embeddings
            prefix = positions.shape[1] - embeddings.patch_embeddings.num_patches
            return Architecture(list(layers), int(prefix), hasattr(embeddings, "cls_token"), int(width), kind)
    return None


def _has(layer: nn.Module, path: str) -> bool:
    try:
        return isinstance(layer.get_submodule(path), nn.Linear)
    except AttributeError:
        return False


class HuggingFaceBlock(ReducedBlock):
    """A layer of version 5 and newer, whose attention takes a mask."""

    def projections(self) -> dict[str, nn.Module]:
        """Queries and keys have their own."""
        layer: Any = self
        return {"queries": layer.attention.q_proj, "keys": layer.attention.k_proj}

    def attended(self, x: Tensor, bias: Tensor | None, further: dict[str, Any]) -> Tensor:
        """The bias is its mask."""
        layer: Any = self
        mask = None if bias is None else bias.to(x.dtype)[:, None, None, :]
        others = {name: value for name, value in further.items() if name != "attention_mask"}
        return layer.dropout(layer.attention(layer.layernorm_before(x), mask, **others)[0])

    def transformed(self, x: Tensor) -> Tensor:
        """The perceptron."""
        layer: Any = self
        return layer.dropout(layer.mlp(layer.layernorm_after(x)))

    def queries_and_keys(self, captured: dict[str, Tensor], rows: slice) -> Attention:
        """As the projections gave them."""
        attention: Any = self.attention
        size = int(attention.head_dim)
        queries, keys = _heads(captured["queries"][:, rows], size), _heads(captured["keys"], size)
        return Attention(queries, keys, float(attention.scaling))

    def given_mask(self, inputs: tuple[Any, ...], further: dict[str, Any]) -> Tensor | None:
        """Its argument is ``attention_mask``."""
        return further.get("attention_mask", inputs[0] if inputs else None)


class OldHuggingFaceBlock(ReducedBlock):
    """A layer of version 4, whose attention takes no mask."""

    returns_tuple: ClassVar[bool] = True

    def projections(self) -> dict[str, nn.Module]:
        """Queries and keys have their own."""
        inner: Any = self.get_submodule("attention.attention")
        return {"queries": inner.query, "keys": inner.key}

    def attended(self, x: Tensor, bias: Tensor | None, further: dict[str, Any]) -> Tensor:
        """With a bias the same parts are used, and fused attention."""
        layer: Any = self
        x = layer.layernorm_before(x)
        if bias is None:
            return layer.attention(x)[0]
        inner, output = layer.attention.attention, layer.attention.output
        size = int(inner.attention_head_size)
        queries, keys, values = (_heads(part(x), size) for part in (inner.query, inner.key, inner.value))
        dropped: Any = getattr(inner, "dropout_prob", 0.0)
        dropout = float(dropped) if self.training else 0.0
        return output.dropout(
            output.dense(attention_with_bias(queries, keys, values, bias, size**-0.5, dropout))
        )

    def transformed(self, x: Tensor) -> Tensor:
        """The perceptron."""
        layer: Any = self
        return layer.output.dropout(layer.output.dense(layer.intermediate(layer.layernorm_after(x))))

    def queries_and_keys(self, captured: dict[str, Tensor], rows: slice) -> Attention:
        """As the projections gave them."""
        inner: Any = self.get_submodule("attention.attention")
        size = int(inner.attention_head_size)
        queries, keys = _heads(captured["queries"][:, rows], size), _heads(captured["keys"], size)
        return Attention(queries, keys, size**-0.5)

    def given_mask(self, inputs: tuple[Any, ...], further: dict[str, Any]) -> Tensor | None:
        """It is given none, but perhaps one of heads."""
        if any(isinstance(value, torch.Tensor) for value in (*inputs, *further.values())):
            raise TypeError("reduce_tokens: layers that are given a head mask are not supported")
        return None


def _heads(x: Tensor, size: int) -> Tensor:
    """(B, N, H·d) to (B, H, N, d)."""
    return x.view(*x.shape[:2], -1, size).transpose(1, 2)
