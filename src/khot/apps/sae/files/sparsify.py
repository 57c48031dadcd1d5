"""Folders of EleutherAI's sparsify 1: ``cfg.json`` and ``sae.safetensors``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from khot.apps.sae.files._reading import (
    NAME,
    check_same,
    check_shapes,
    filled,
    matrices,
    read_config,
    stated,
    switch,
    whole_number,
)
from khot.files.tensors import read_tensors, tensor_writer
from khot.files.whole import json_writer, write_together

if TYPE_CHECKING:
    from khot.apps.sae.autoencoder import SparseAutoencoder

__all__ = ["WEIGHTS", "read", "write"]

WEIGHTS = "sae.safetensors"
_CONFIG = "cfg.json"
_NAMES = {
    "encoder.weight": "W_enc",
    "encoder.bias": "b_enc",
    "W_dec": "W_dec",
    "b_dec": "b_dec",
    "W_skip": "W_skip",
}


def write(autoencoder: SparseAutoencoder, folder: Path, about: Mapping[str, Any]) -> None:
    """Write a folder; see :meth:`khot.apps.sae.SparseAutoencoder.save`."""
    options = autoencoder.options
    if options.activation not in ("topk", "sigmoid_topk"):
        raise ValueError(
            f"SparseAutoencoder.save: sparsify has no {options.activation}, only topk; "
            "format='saelens' has jumprelu"
        )
    if options.d_out != options.d_in:
        raise ValueError(
            f"SparseAutoencoder.save: sparsify has no transcoder from {options.d_in} to "
            f"{options.d_out}, only of equal lengths"
        )
    if about:
        raise ValueError(f"SparseAutoencoder.save: sparsify has no place for about, got {dict(about)!r}")
    tensors = {
        name: autoencoder.get_parameter(own).detach() for name, own in _NAMES.items() if own != "W_skip"
    }
    norms = autoencoder.norms()
    if norms is not None:  # selected by what is decoded: the same with norms in the encoder
        tensors["encoder.weight"] = tensors["encoder.weight"] * norms[:, None]
        tensors["encoder.bias"] = tensors["encoder.bias"] * norms
        tensors["W_dec"] = tensors["W_dec"] / norms[:, None]
    if not options.transcoder and not options.subtract_b_dec:  # sparsify always subtracts
        tensors["encoder.bias"] = tensors["encoder.bias"] + tensors["encoder.weight"] @ tensors["b_dec"]
    if autoencoder.W_skip is not None:
        tensors["W_skip"] = autoencoder.W_skip.detach()
    config: dict[str, Any] = {
        "activation": "topk",
        "expansion_factor": max(options.num_latents // options.d_in, 1),
        "normalize_decoder": options.normalize_decoder,
        "num_latents": options.num_latents,
        "k": options.k,
        "multi_topk": options.multi_topk,
        "skip_connection": options.skip,
        "transcode": options.transcoder,
        "d_in": options.d_in,
    }
    write_together(
        {
            folder / WEIGHTS: tensor_writer(tensors, {"khot_config": config}),
            folder / _CONFIG: json_writer(config),
        }
    )


def read(make: type[SparseAutoencoder], weights: Path) -> SparseAutoencoder:
    """Read a folder written by sparsify or by :func:`write`."""
    path = weights.parent / _CONFIG
    config = read_config(path)
    activation = stated(config, "activation", path)
    if activation != "topk":
        raise ValueError(f"{NAME}: {path} has activation {activation!r}; khot reads 'topk'")
    d_in = whole_number(config, "d_in", path)
    if config.get("num_latents"):
        latents = whole_number(config, "num_latents", path)
    else:
        latents = d_in * whole_number(config, "expansion_factor", path)
    tensors, about = read_tensors(weights)
    k = whole_number(config, "k", path)
    check_same(config, about.get("khot_config"), path)
    unknown = [name for name in tensors if name not in _NAMES]
    if unknown or "encoder.weight" not in tensors:
        raise ValueError(
            f"{NAME}: {weights} {f'has {unknown[0]}' if unknown else 'lacks encoder.weight'}, unlike "
            "sparsify's files"
        )
    tensors = {_NAMES[name]: tensor for name, tensor in tensors.items()}
    skip = switch(config, "skip_connection", path, default=False)
    check_shapes(tensors, matrices(latents, d_in, d_in, skip), weights)
    autoencoder = make(
        d_in,
        latents,
        k,
        transcoder=switch(config, "transcode", path, default=False),
        skip=skip,
        multi_topk=switch(config, "multi_topk", path, default=False),
        normalize_decoder=switch(config, "normalize_decoder", path, default=True),
        dtype=tensors["W_enc"].dtype,
    )
    return filled(autoencoder, tensors, weights)
