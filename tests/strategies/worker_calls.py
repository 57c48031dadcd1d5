"""A data set whose items are the calls of `strategies.every_call`, made in the workers of a DataLoader."""

import os

from torch import Tensor
from torch.utils.data import Dataset


class CallsInWorkers(Dataset):
    """Item i is (name, whether the call gives the expected bits, the process that made it)."""

    def __init__(self, expected: dict[str, tuple[Tensor, ...]]) -> None:
        self.names = list(expected)
        self.expected = {
            name: [tensor.numpy().tobytes() for tensor in tensors] for name, tensors in expected.items()
        }

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[str, bool, int]:
        from strategies.every_call import every_call  # here: a spawned worker imports it itself

        name = self.names[index]
        found = [tensor.numpy().tobytes() for tensor in every_call()[name]()]
        return name, found == self.expected[name], os.getpid()
