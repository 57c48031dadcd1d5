"""How large exported graphs are: nodes of ``torch.export`` and of ONNX, each run and compared with torch."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import khot
from khot.compare.machine import describe_origin
from khot.compare.report.grid import Grid
from khot.vision import NetworkConfig, VisionTransformer, reduce_tokens
from khot_bench.results import load_record

__all__ = ["OPSET", "Exported", "Row", "exported_table", "load_exported", "run_exported"]

OPSET = 18


@dataclass(frozen=True)
class Row:
    """One model: nodes that compute something, and the largest difference of a result from torch's."""

    model: str
    export_nodes: int
    onnx_nodes: int
    difference: float


@dataclass(frozen=True)
class Exported:
    """All models, and where and when they were exported."""

    rows: tuple[Row, ...]
    opset: int
    command: str
    origin: str


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def _of_inputs(x: Tensor, k: Tensor, temperature: Tensor, mask: Tensor) -> Tensor:
    return khot.sigmoid_topk(x, k, temperature=temperature, mask=mask)


def _at_five(operator: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: operator(x, 5)


def _models() -> dict[str, tuple[nn.Module, tuple[Tensor, ...]]]:
    """Models by title, with inputs of the shape for which they are exported."""
    x = torch.randn(32, 100)
    operators: dict[str, Callable[..., Tensor]] = {
        "hard_topk": khot.hard_topk,
        "sparse_topk": khot.sparse_topk,
        "sigmoid_topk": khot.sigmoid_topk,
        "laplace_topk": khot.laplace_topk,
    }
    models: dict[str, tuple[nn.Module, tuple[Tensor, ...]]] = {
        f"`{name}(x, 5)`": (_Function(_at_five(f)), (x,)) for name, f in operators.items()
    }
    learned = (x, torch.full((32,), 5.0), torch.tensor(0.5), x > -1)
    models["`sigmoid_topk`; k, temperature and mask are inputs"] = (_Function(_of_inputs), learned)
    network = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), khot.nn.TopK(4, temperature=0.3), nn.Linear(20, 3))
    models["two linear layers with `TopK` between them"] = (network, (torch.randn(5, 6),))
    config = NetworkConfig(image_size=16, channels=3, classes=5, patch_size=4, width=16, depth=3, heads=2)
    images = torch.randn(3, 3, 16, 16)
    models["a vision transformer of three blocks"] = (VisionTransformer(config), (images,))
    reduced = VisionTransformer(config)
    reduce_tokens(reduced, 0.5, (1,))
    models["the same with half of the tokens after one block"] = (reduced, (images,))
    return models


def run_exported(report: Callable[[str, float], None], command: str) -> Exported:
    """Export and run each model; needs onnxscript and onnxruntime."""
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]
    models = _models()
    rows: list[Row] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        for i, (title, (model, inputs)) in enumerate(models.items()):
            report(title, i / len(models))
            rows.append(_exported(title, model.eval(), inputs))
    report("done", 1.0)
    return Exported(tuple(rows), OPSET, command, describe_origin(("onnxscript", "onnxruntime")))


def _exported(title: str, model: nn.Module, inputs: tuple[Tensor, ...]) -> Row:
    runtime: Any = importlib.import_module("onnxruntime")
    exporter: Any = torch.onnx  # neither has types
    program = torch.export.export(model, inputs)
    made = exporter.export(model, inputs, dynamo=True, opset_version=OPSET, verbose=False)
    session = runtime.InferenceSession(made.model_proto.SerializeToString())
    names = [i.name for i in session.get_inputs()]
    found = session.run(None, {name: t.numpy() for name, t in zip(names, inputs, strict=True)})[0]
    with torch.no_grad():
        difference = (torch.tensor(found) - model(*inputs)).abs().max().item()
    computed = sum(node.op == "call_function" for node in program.graph.nodes)
    return Row(title, computed, len(made.model_proto.graph.node), difference)


def exported_table(found: Exported) -> Grid:
    """One row a model."""
    return Grid(
        caption=f"Exported graphs: float32, ONNX opset {found.opset}",
        header=("model", "nodes of torch.export", "nodes of ONNX", "differs from torch by"),
        rows=tuple(
            (
                row.model,
                str(row.export_nodes),
                str(row.onnx_nodes),
                f"{row.difference:.0e}" if row.difference else "0",
            )
            for row in found.rows
        ),
        notes=(
            "Scores are 32×100; sizes depend neither on the rows nor on n. Nodes of torch.export are calls "
            "of operations of aten. The last column is the largest difference of a result in onnxruntime.",
        ),
        origin=found.origin,
        text_columns=1,
    )


def load_exported(root: Path) -> Exported:
    """The committed measurement."""
    return load_record(Exported, "export", root)
