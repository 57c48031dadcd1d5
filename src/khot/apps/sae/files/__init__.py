"""Sparse autoencoders on disk, in the layouts of other tools; nothing is ever unpickled.

===================  ======  ======  =========================================================================
layout               read    write   what it holds
===================  ======  ======  =========================================================================
SAELens              yes     yes     ``cfg.json`` and ``sae_weights.safetensors``
sparsify             yes     yes     ``cfg.json`` and ``sae.safetensors``
dictionary_learning  yes             ``config.json`` and ``ae.pt``; only tensors are read
Gemma Scope          yes             ``params.npz``
===================  ======  ======  =========================================================================

If a tool cannot express an autoencoder, it is written as an equivalent one that computes the same, or
refused:

- ``sigmoid_topk`` is written as ``topk``, to which it is equal in evaluation; prefixes have no effect there
  and are left out;
- ``batch_topk`` is written for SAELens as ``jumprelu`` with its threshold, with decoder norms folded in;
  sparsify supports neither;
- transcoders of SAELens are ReLU or JumpReLU: a ``topk`` transcoder is refused (:meth:`as_jumprelu` converts
  it).

When a folder is read, it must state activation, k and dtype, and sizes must agree. Unknown settings are
refused by name: there is no fallback to ReLU and no default k. Weights carry the configuration they were
saved with, so a ``cfg.json`` that was changed later, or belongs to other weights, is detected.
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
    """Write a folder in the given format; see :meth:`khot.apps.sae.SparseAutoencoder.save`."""
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
    """Read a folder; its format is recognised from its files. See ``SparseAutoencoder.load``."""
    if folder.suffix == ".npz":
        return gemma_scope.read(make, folder)
    for module in (saelens, sparsify, dictionary_learning, gemma_scope):
        if (folder / module.WEIGHTS).is_file():
            return module.read(make, folder / module.WEIGHTS)
    names = ", ".join(module.WEIGHTS for module in (saelens, sparsify, dictionary_learning, gemma_scope))
    raise FileNotFoundError(f"SparseAutoencoder.load: there is none of {names} in {folder}")
