"""Small networks with every kind of layer that can be made sparse, and one step of their training."""

import torch
from torch import nn


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 3))


class EveryKind(nn.Module):
    """An embedding, three convolutions, one of them transposed, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.conv = nn.Conv1d(8, 12, 3)
        self.plane = nn.Conv2d(4, 8, 2)
        self.back = nn.ConvTranspose1d(12, 4, 2)
        self.head = nn.Linear(8, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.back(self.conv(self.embed(ids).mT).relu())
        return self.head(self.plane(x.unsqueeze(2).expand(-1, -1, 3, -1)).mean((-2, -1)))


def every_kind() -> nn.Module:
    torch.manual_seed(0)
    return EveryKind()


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    optimizer.zero_grad()
    x = torch.randn(16, 12, generator=generator)
    target = torch.randint(3, (16,), generator=generator)
    nn.functional.cross_entropy(model(x), target).backward()
    optimizer.step()
