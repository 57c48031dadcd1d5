"""Check that all processes make the same call, in one small message before anything else.

A process that raises alone lets the others wait until the time-out. So each process first sends one message
of fixed length: whether its own arguments are valid, the length of its shard, and a digest of everything that
must be the same. If something is wrong, all processes raise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from khot.parallel._group import Group

__all__ = ["agreed_sizes"]

_LENGTH = 16


def agreed_sizes(
    name: str, group: Group, device: torch.device, describe: Callable[[], tuple[int, dict[str, Any]]]
) -> list[int]:
    """The lengths of all shards; an error in every process if the processes do not make the same call.

    Args:
        name: the function that was called.
        group: the processes.
        device: the device of the messages.
        describe: checks the arguments of this process; returns the length of its shard, and everything that
            must be the same in all processes, by the name of the argument.
    """
    failure: Exception | None = None
    size, facts = 0, dict[str, Any]()
    try:
        size, facts = describe()
    except Exception as error:  # whatever it is, the others wait
        failure = error
    if group.size == 1:
        if failure is not None:
            raise failure
        return [size]
    facts = {"function": name, **facts}
    assert len(facts) + 2 <= _LENGTH
    numbers = [int(failure is not None), size, *(_digest(value) for value in facts.values())]
    message = torch.tensor(numbers + [0] * (_LENGTH - len(numbers)), dtype=torch.int64)
    each = group.each(message.to(device)).cpu()
    if bool((each[:, :1] != 0).any() or (each[:, 2:] != each[:1, 2:]).any()):
        _raise(name, group, failure, facts)
    return [int(length) for length in each[:, 1]]


def _raise(name: str, group: Group, failure: Exception | None, facts: dict[str, Any]) -> None:
    """Exchange what is needed for a message, and raise; all processes come here."""
    shown = {argument: _shown(value) for argument, value in facts.items()}
    digests = {argument: _digest(value) for argument, value in facts.items()}
    words = group.words((None if failure is None else str(failure), shown, digests))
    if failure is not None:
        raise failure
    for rank, (text, _, _) in enumerate(words):
        if text is not None:
            raise ValueError(f"{name}: process {rank} of the group refused its arguments: {text}")
    for argument in [each for _, of_rank, _ in words for each in of_rank]:
        if len({of_rank.get(argument) for _, _, of_rank in words}) > 1:
            values = [of_rank.get(argument, "nothing") for _, of_rank, _ in words]
            got = ", ".join(f"{value} in process {rank}" for rank, value in enumerate(values[:8]))
            raise ValueError(f"{name}: {argument} must be the same in all processes, got {got}")
    raise AssertionError("digests differ, and arguments do not")


def _digest(value: Any) -> int:
    if isinstance(value, Tensor):
        words = value.detach().to("cpu", torch.float64).contiguous().numpy().tobytes()
        text = str(tuple(value.shape)).encode() + words
    else:
        text = repr(value).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)


def _shown(value: Any) -> str:
    if not isinstance(value, Tensor):
        return str(value)
    if value.numel() <= 8:
        return str(cast("Any", value).tolist())
    return f"a tensor of shape {tuple(value.shape)} with mean {value.double().mean().item():.9g}"
