"""Sparse autoencoders on disk, in the layouts of other tools; nothing is ever unpickled.

==================  ======  ======  ==========================================================================
layout              read    write   what it holds
==================  ======  ======  ==========================================================================
SAELens             yes     yes     ``cfg.json`` and ``sae_weights.safetensors``
sparsify            yes     yes     ``cfg.json`` and ``sae.safetensors``
dictionary_learning yes             ``config.json`` and ``ae.pt``, of which only tensors are read
Gemma Scope         yes             ``params.npz``
==================  ======  ======  ==========================================================================

What a tool cannot express is written as what it can, if that computes the same, and refused if not:

- ``sigmoid_topk`` is written as ``topk``, which it is in evaluation; prefixes do not matter there and are
  left out;
- ``batch_topk`` is ``jumprelu`` with its threshold for SAELens, decoder norms folded; sparsify has neither;
- transcoders of SAELens are ReLU or JumpReLU: a ``topk`` one is refused (:meth:`as_jumprelu` makes one).

When read, the activation, k and the dtype must be stated, sizes must agree, and what is not known is
refused by name: no ReLU in the place of TopK, no default k. Weights carry the configuration they were saved
with, so a ``cfg.json`` that was changed later, or that is of other weights, is noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from khot.apps.sae.files import dictionary_learning, gemma_scope, saelens, sparsify

if TYPE_CHECKING:
    from khot.apps.sae.autoencoder import SparseAutoencoder

__all__ = ["FileFormat", "read_folder", "write_folder"]

FileFormat = Literal["saelens", "sparsify"]

_WRITERS = {"saelens": saelens.write, "sparsify": sparsify.write}


def write_folder(
    autoencoder: SparseAutoencoder, folder: Path, format: FileFormat, about: Mapping[str, Any]
) -> None:
    """Write a folder of the format; see :meth:`khot.apps.sae.SparseAutoencoder.save`."""
    if format not in _WRITERS:
        raise ValueError(
            f"SparseAutoencoder.save: format must be one of {', '.join(_WRITERS)}, got {format!r}"
        )
    for other in (saelens, sparsify):
        if _WRITERS[format] is not other.write and (folder / other.WEIGHTS).exists():
            raise FileExistsError(
                f"SparseAutoencoder.save: {folder} holds {other.WEIGHTS}, of another format than {format}; "
                "take another folder, or remove it"
            )
    _WRITERS[format](autoencoder, folder, about)


def read_folder(make: type[SparseAutoencoder], folder: Path) -> SparseAutoencoder:
    """Read a folder whose format is recognised by its files; see
    :meth:`khot.apps.sae.SparseAutoencoder.load`."""
    if folder.suffix == ".npz":
        return gemma_scope.read(make, folder)
    for module in (saelens, sparsify, dictionary_learning, gemma_scope):
        if (folder / module.WEIGHTS).is_file():
            return module.read(make, folder / module.WEIGHTS)
    names = ", ".join(module.WEIGHTS for module in (saelens, sparsify, dictionary_learning, gemma_scope))
    raise FileNotFoundError(f"SparseAutoencoder.load: there is none of {names} in {folder}")
