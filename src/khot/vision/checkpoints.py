"""Networks on disk: a folder with `config.json` and `model.safetensors`; nothing is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from khot.files.tensors import check_fits, read_tensors, tensor_writer
from khot.files.whole import json_writer, write_together
from khot.relaxations._plain_arguments import check_path, check_tensor
from khot.vision.config import NetworkConfig
from khot.vision.models import Network, from_config

__all__ = ["load_network", "load_weights", "save_network"]

_CONFIG = "config.json"
_WEIGHTS = "model.safetensors"
_OWNER = "the network of this configuration"


def save_network(model: Network, folder: str | Path, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write a network to a folder: `config.json` and `model.safetensors`, completely or not at all.

    The weights file holds the configuration too, so that a later change of `config.json` is detected.

    Args:
        model: one of the three networks.
        folder: created if necessary.
        weights: by default the ``state_dict`` of the model, which may hold only parts of them.

    Returns:
        None; the files are written.

    Example:
        >>> import tempfile
        >>> from khot.vision import preset
        >>> folder = tempfile.mkdtemp()
        >>> save_network(from_config(preset("digits")), folder)
        >>> load_network(folder).config == preset("digits")
        True
    """
    name = "save_network"
    if not isinstance(getattr(model, "config", None), NetworkConfig):
        raise TypeError(f"{name}: model must be a network of khot.vision, got {type(model).__name__}")
    check_path(name, "folder", folder)
    config = model.config.to_dict()
    tensors = dict(model.state_dict() if weights is None else weights)
    for key, tensor in tensors.items():
        check_tensor(name, f"weights[{key!r}]", tensor)
    write_together(
        {
            Path(folder) / _WEIGHTS: tensor_writer(tensors, {"config": config}),
            Path(folder) / _CONFIG: json_writer(config),
        }
    )


def load_network(folder: str | Path) -> Network:
    """Load a network written by :func:`save_network`.

    Args:
        folder: a folder with `config.json` and `model.safetensors`.

    Returns:
        The network, in evaluation mode.

    Example:
        >>> load_network("absent")
        Traceback (most recent call last):
        FileNotFoundError: load_network: there is no absent/config.json
    """
    check_path("load_network", "folder", folder)
    folder = Path(folder)
    for name in (_CONFIG, _WEIGHTS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"load_network: there is no {folder / name}")
    config = NetworkConfig.from_json(folder / _CONFIG)
    tensors, about = read_tensors(folder / _WEIGHTS)
    if isinstance(about.get("config"), dict):
        _check_same(folder, config.to_dict(), cast("dict[str, Any]", about["config"]))
    _check_size(config, tensors, folder)
    model = from_config(config)
    load_weights(model, tensors, str(folder / _WEIGHTS))
    return model.eval()


def load_weights(model: Network, tensors: Mapping[str, Tensor], source: str) -> None:
    """Load tensors into a network of the same configuration; errors name a tensor that does not fit.

    Args:
        model: the network, changed in place.
        tensors: tensors by the names of its ``state_dict``.
        source: where they come from, for errors.

    Example:
        >>> model = from_config({"model": "vit", "depth": 1})
        >>> load_weights(model, {}, "nowhere")
        Traceback (most recent call last):
        ValueError: nowhere lacks cls_token, which the network of this configuration has
    """
    check_fits(cast("dict[str, Tensor]", model.state_dict()), tensors, source, _OWNER)
    model.load_state_dict(dict(tensors))


def _check_size(config: NetworkConfig, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Compare sizes before memory is taken: a configuration can ask for any, the weights have theirs."""
    asking = f"load_network: {folder / _CONFIG} asks for"
    if config.depth > len(tensors):
        raise ValueError(f"{asking} {config.depth} blocks, {folder / _WEIGHTS} has {len(tensors)} tensors")
    present = sum(tensor.numel() for tensor in tensors.values())
    if _least_parameters(config) > present:
        raise ValueError(
            f"{asking} {_least_parameters(config)} parameters or more, {folder / _WEIGHTS} has {present}"
        )


def _least_parameters(config: NetworkConfig) -> int:
    """No more than the network has: its largest matrices alone."""
    width, inner = config.width, config.width * config.expansion
    mixing = width**2
    if config.model == "topk_dynamic":
        mixing = 2 * width * inner + inner**2 + config.tokens**2
    patch = config.channels * config.patch_hw[0] * config.patch_hw[1]
    return config.depth * (mixing + 2 * width * config.hidden) + width * (
        patch + config.tokens + config.classes
    )


def _check_same(folder: Path, given: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    for field, value in given.items():
        if field in saved and saved[field] != value:
            raise ValueError(
                f"load_network: {folder / _CONFIG} has {field} = {json.dumps(value)}, "
                f"the weights were saved with {json.dumps(saved[field])}"
            )
