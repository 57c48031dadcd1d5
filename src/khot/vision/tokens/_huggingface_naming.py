"""Vision transformers with the attribute names of transformers.

Version 5: ViT and DeiT (``layers[i].attention.q_proj``), DINOv2 with and without registers
(``encoder.layer[i].attention.q_proj``), CLIP and SigLIP (``encoder.layers[i].self_attn.q_proj``). Version 4:
ViT and DeiT (``encoder.layer[i].attention.attention.query``).
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from khot.vision.tokens._block import Architecture, ReducedBlock, attention_with_bias, has_parts
from khot.vision.tokens.reduction import Attention

__all__ = [
    "ClipBlock",
    "Dinov2Block",
    "HuggingFaceBlock",
    "OldHuggingFaceBlock",
    "describe_huggingface",
]


def describe_huggingface(model: nn.Module) -> Architecture | None:
    """The structure of the model, or None if it does not have these names."""
    base: Any = getattr(model, "base_model", model)
    tower: Any = getattr(base, "vision_model", base)  # of a model of images and texts
    layers = _layers(tower)
    prefix = _prefix(getattr(tower, "embeddings", None))
    if layers is None or prefix is None:
        return None
    for kind in (HuggingFaceBlock, Dinov2Block, ClipBlock, OldHuggingFaceBlock):
        if all(has_parts(layer, kind) for layer in layers):
            width: Any = layers[0].get_submodule(kind.queries).in_features
            return Architecture(layers, prefix, prefix > 0, int(width), kind)
    return None


def _layers(tower: Any) -> list[nn.Module] | None:
    encoder = getattr(tower, "encoder", tower)
    for name in ("layers", "layer"):
        found = getattr(encoder, name, None)
        if isinstance(found, nn.ModuleList) and len(found):
            return list(found)
    return None


def _prefix(embeddings: Any) -> int | None:
    """How many tokens stand before the patches, CLS the first of them; None if these are no patches."""
    patches = getattr(embeddings, "patch_embeddings", None)
    if patches is not None:
        positions = int(embeddings.position_embeddings.shape[1]) - int(patches.num_patches)
        registers = getattr(embeddings, "register_tokens", None)  # which have no positions
        return positions + (0 if registers is None else int(registers.shape[1]))
    # A linear embedding is SigLIP 2's, whose pooling wants the mask of all patches.
    if not isinstance(getattr(embeddings, "patch_embedding", None), nn.Conv2d):
        return None
    return int(embeddings.num_positions) - int(embeddings.num_patches)


class HuggingFaceBlock(ReducedBlock):
    """A layer of ViT or DeiT since version 5, whose attention takes a mask."""

    attention_name: ClassVar[str] = "attention"
    queries: ClassVar[str] = "attention.q_proj"
    parts: ClassVar[tuple[str, ...]] = (
        *(queries, "attention.k_proj", "layernorm_before", "layernorm_after", "mlp", "dropout"),
    )

    def projections(self) -> dict[str, nn.Module]:
        """Separate projections for queries and keys."""
        attention: Any = self.get_submodule(self.attention_name)
        return {"queries": attention.q_proj, "keys": attention.k_proj}

    def normed(self, x: Tensor, number: int) -> Tensor:
        """The normalised input of branch 1, the attention, or 2, the MLP."""
        layer: Any = self
        return (layer.layernorm_before if number == 1 else layer.layernorm_after)(x)

    def branched(self, x: Tensor, number: int) -> Tensor:
        """The output of the branch, before it is added."""
        layer: Any = self
        return layer.dropout(x)

    def attended(self, x: Tensor, bias: Tensor | None, further: dict[str, Any]) -> Tensor:
        """Pass the bias as the attention mask."""
        mask = None if bias is None else bias.to(x.dtype)[:, None, None, :]
        others = {name: value for name, value in further.items() if name != "attention_mask"}
        attention: Any = self.get_submodule(self.attention_name)
        return self.branched(attention(self.normed(x, 1), attention_mask=mask, **others)[0], 1)

    def transformed(self, x: Tensor) -> Tensor:
        """The MLP."""
        layer: Any = self
        return self.branched(layer.mlp(self.normed(x, 2)), 2)

    def queries_and_keys(self, captured: dict[str, Tensor], rows: slice) -> Attention:
        """The outputs of the projections."""
        attention: Any = self.get_submodule(self.attention_name)
        size = int(attention.head_dim)
        queries, keys = _heads(captured["queries"][:, rows], size), _heads(captured["keys"], size)
        scale = attention.scaling if hasattr(attention, "scaling") else attention.scale
        return Attention(queries, keys, float(scale))

    def given_mask(self, inputs: tuple[Any, ...], further: dict[str, Any]) -> Tensor | None:
        """The argument ``attention_mask``."""
        return further.get("attention_mask", inputs[0] if inputs else None)


class Dinov2Block(HuggingFaceBlock):
    """A layer of DINOv2: layer scale, and stochastic depth."""

    parts: ClassVar[tuple[str, ...]] = (
        *("attention.q_proj", "attention.k_proj", "norm1", "norm2", "mlp"),
        *("layer_scale1", "layer_scale2", "drop_path"),
    )

    def normed(self, x: Tensor, number: int) -> Tensor:
        """The norm with this number."""
        layer: Any = self
        return (layer.norm1 if number == 1 else layer.norm2)(x)

    def branched(self, x: Tensor, number: int) -> Tensor:
        """Apply layer scale and, in training, stochastic depth."""
        layer: Any = self
        return layer.drop_path((layer.layer_scale1 if number == 1 else layer.layer_scale2)(x))


class ClipBlock(HuggingFaceBlock):
    """A layer of CLIP or SigLIP, which always takes a mask argument, possibly None."""

    attention_name: ClassVar[str] = "self_attn"
    queries: ClassVar[str] = "self_attn.q_proj"
    parts: ClassVar[tuple[str, ...]] = (queries, "self_attn.k_proj", "layer_norm1", "layer_norm2", "mlp")
    plain_inputs: ClassVar[tuple[Any, ...]] = (None,)

    def normed(self, x: Tensor, number: int) -> Tensor:
        """The norm with this number."""
        layer: Any = self
        return (layer.layer_norm1 if number == 1 else layer.layer_norm2)(x)

    def branched(self, x: Tensor, number: int) -> Tensor:
        """The output unchanged."""
        return x


class OldHuggingFaceBlock(ReducedBlock):
    """A layer of ViT or DeiT in version 4, whose attention takes no mask."""

    queries: ClassVar[str] = "attention.attention.query"
    parts: ClassVar[tuple[str, ...]] = (
        *(queries, "attention.attention.key", "attention.attention.value", "attention.output"),
        *("layernorm_before", "layernorm_after", "intermediate", "output"),
    )
    returns_tuple: ClassVar[bool] = True

    def projections(self) -> dict[str, nn.Module]:
        """Separate projections for queries and keys."""
        inner: Any = self.get_submodule("attention.attention")
        return {"queries": inner.query, "keys": inner.key}

    def attended(self, x: Tensor, bias: Tensor | None, further: dict[str, Any]) -> Tensor:
        """With a bias: the same parts with fused attention."""
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
        """The MLP."""
        layer: Any = self
        return layer.output.dropout(layer.output.dense(layer.intermediate(layer.layernorm_after(x))))

    def queries_and_keys(self, captured: dict[str, Tensor], rows: slice) -> Attention:
        """The outputs of the projections."""
        inner: Any = self.get_submodule("attention.attention")
        size = int(inner.attention_head_size)
        queries, keys = _heads(captured["queries"][:, rows], size), _heads(captured["keys"], size)
        return Attention(queries, keys, size**-0.5)

    def given_mask(self, inputs: tuple[Any, ...], further: dict[str, Any]) -> Tensor | None:
        """None: the layer gets at most a head mask."""
        if any(isinstance(value, torch.Tensor) for value in (*inputs, *further.values())):
            raise TypeError("reduce_tokens: layers that are given a head mask are not supported")
        return None


def _heads(x: Tensor, size: int) -> Tensor:
    """(B, N, H·d) to (B, H, N, d)."""
    return x.view(*x.shape[:2], -1, size).transpose(1, 2)
