"""Evaluate a network on test images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from khot.relaxations._plain_arguments import check_integer, check_switch
from khot.vision.data import FolderImages, ImageTensors
from khot.vision.training.processes import Processes

__all__ = ["evaluate"]


def evaluate(
    model: nn.Module,
    data: ImageTensors | FolderImages,
    batch_size: int = 256,
    bfloat16: bool = False,
    processes: Processes | None = None,
) -> dict[str, float]:
    """Cross entropy, top-1 and top-5 accuracy of a network.

    Cost: one forward pass over the data.

    Args:
        model: a module from images to logits; its mode is restored afterwards.
        data: the images.
        batch_size: images per forward pass.
        bfloat16: whether to use autocast to bfloat16.
        processes: the processes that share the work; by default only this one.

    Returns:
        ``loss``, ``top1`` and ``top5``; with fewer than five classes top-5 is 1.

    Example:
        >>> data = ImageTensors(torch.eye(3).view(3, 1, 1, 3), torch.tensor([0, 1, 1]), ("a", "b", "c"))
        >>> round(evaluate(nn.Flatten(), data)["top1"], 3)
        0.667
    """
    check_integer("evaluate", "batch_size", batch_size)
    check_switch("evaluate", "bfloat16", bfloat16)
    processes = processes or Processes()
    mine = torch.arange(processes.rank, len(data), processes.count)
    totals = torch.zeros(3, dtype=torch.float64)
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    was_training = model.training
    model.eval()
    try:
        # As many passes in each process: one with shards of the parameters waits for the others.
        for start in range(0, -(-len(data) // processes.count), batch_size):
            images, labels = data.batch(mine[start : start + batch_size])
            totals += _batch_totals(model, images.to(device), labels.to(device), bfloat16).cpu()
    finally:
        model.train(was_training)
    means = processes.summed(totals) / len(data)
    return {"loss": means[0].item(), "top1": means[1].item(), "top5": means[2].item()}


@torch.no_grad()
def _batch_totals(model: nn.Module, images: Tensor, labels: Tensor, bfloat16: bool) -> Tensor:
    with torch.autocast(images.device.type, torch.bfloat16, enabled=bfloat16):
        logits = model(images)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss = F.cross_entropy(logits, labels, reduction="sum")
    best = logits.topk(min(5, logits.shape[-1])).indices == labels.unsqueeze(-1)
    return torch.stack([loss.double(), best[:, 0].sum().double(), best.sum().double()])
