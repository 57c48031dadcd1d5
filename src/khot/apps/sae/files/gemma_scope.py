"""Files of Gemma Scope: ``params.npz`` with the weights of a JumpReLU autoencoder, and no configuration."""

from __future__ import annotations

import math
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from numpy.lib import format as npy
from torch import Tensor

from khot.apps.sae.files._reading import NAME, check_shapes, filled, matrices, sizes_of
from khot.files.untrusted import check_archive

if TYPE_CHECKING:
    from khot.apps.sae.autoencoder import SparseAutoencoder

__all__ = ["WEIGHTS", "read"]

WEIGHTS = "params.npz"


def read(make: type[SparseAutoencoder], path: Path) -> SparseAutoencoder:
    """Read ``params.npz``: W_enc or w_enc (d_in, M), W_dec or w_dec (M, d_in), b_enc, b_dec, threshold."""
    if not path.is_file():
        raise FileNotFoundError(f"{NAME}: there is no {path}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers of Python 2, which are read as well
            tensors = _tensors(path)
    except Exception as error:  # whatever a damaged file makes of the parsers of archives, headers and Python
        reason = str(error) or repr(error)
        raise ValueError(f"{NAME}: {path} is not a whole npz file of arrays ({reason})") from error
    for name in ("W_enc", "threshold"):
        if name not in tensors:
            raise ValueError(f"{NAME}: {path} lacks {name}, which JumpReLU needs")
    d_in, latents = sizes_of(tensors, "W_enc", path)
    tensors["W_enc"] = tensors["W_enc"].T
    check_shapes(tensors, matrices(latents, d_in, d_in), path)
    made = make(
        d_in,
        latents,
        latents,
        "jumprelu",
        subtract_b_dec=False,
        normalize_decoder=False,
        threshold=tensors.pop("threshold"),
        dtype=tensors["W_enc"].dtype,
    )
    return filled(made, tensors, path)


def _tensors(path: Path) -> dict[str, Tensor]:
    """The arrays of an npz file by name; each is read only if the archive holds all of it."""
    sizes = check_archive(path)
    tensors: dict[str, Tensor] = {}
    with zipfile.ZipFile(path) as archive:
        for name, size in sizes.items():
            with archive.open(name) as member:
                version = npy.read_magic(member)
                header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, _, dtype = header(member)
            if dtype.kind != "f" or math.prod(shape) * dtype.itemsize > size:
                raise ValueError(f"{name} has {dtype} of the shape {shape} in {size} bytes")
            with archive.open(name) as member:
                array = npy.read_array(member, allow_pickle=False)
            key = name.removesuffix(".npy")
            tensors["W_" + key[2:] if key.startswith("w_") else key] = torch.as_tensor(array)
    return tensors
