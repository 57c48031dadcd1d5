"""Files of Gemma Scope: ``params.npz`` with the weights of a JumpReLU autoencoder, and no configuration."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from khot.apps.sae.files._reading import NAME, filled

if TYPE_CHECKING:
    from khot.apps.sae.autoencoder import SparseAutoencoder

__all__ = ["WEIGHTS", "read"]

WEIGHTS = "params.npz"


def read(make: type[SparseAutoencoder], path: Path) -> SparseAutoencoder:
    """Read ``params.npz``: W_enc or w_enc (d_in, M), W_dec or w_dec (M, d_in), b_enc, b_dec, threshold."""
    if not path.is_file():
        raise FileNotFoundError(f"{NAME}: there is no {path}")
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{NAME}: {path} is not a whole npz file of arrays ({error})") from error
    tensors = {"W_" + n[2:] if n[:2] in ("W_", "w_") else n: torch.as_tensor(a) for n, a in arrays.items()}
    for name in ("W_enc", "threshold"):
        if name not in tensors:
            raise ValueError(f"{NAME}: {path} lacks {name}, which JumpReLU needs")
    tensors["W_enc"] = tensors["W_enc"].T
    latents, d_in = tensors["W_enc"].shape
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
