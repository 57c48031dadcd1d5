"""Exported models, computed by onnxruntime: equal to torch, and small."""

import numpy as np
import onnxruntime
import pytest
import torch

import khot
from khot import nn
from khot.vision import NetworkConfig, VisionTransformer, reduce_tokens

OPSET = 18
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # the exporter's own
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def exported(model, inputs, **options):
    """The session of a model, and how many nodes its graph has."""
    program = torch.onnx.export(
        model.eval(), inputs, dynamo=True, opset_version=OPSET, verbose=False, **options
    )
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())

    def run(*tensors):
        names = [i.name for i in session.get_inputs()]
        return torch.tensor(session.run(None, dict(zip(names, map(np.asarray, tensors), strict=True)))[0])

    return run, len(program.model_proto.graph.node)


def hard_rows():
    inf = torch.inf
    special = [
        [inf, 1.0, 0.5, 0.0, -inf],
        [inf] * 4 + [0.0],
        [-inf] * 4 + [1.0],
        [2.0] * 5,
        [1e30, -1e30, 0, 1e4, 5],
    ]
    return torch.cat(
        [3 * torch.randn(27, 5, generator=torch.Generator().manual_seed(0)), torch.tensor(special)]
    )


@pytest.mark.parametrize(
    ("operator", "most"),
    [(khot.sigmoid_topk, 150), (khot.laplace_topk, 205), (khot.sparse_topk, 100), (khot.hard_topk, 30)],
)
def test_operators(operator, most):
    x = hard_rows()
    run, nodes = exported(Function(lambda x: operator(x, 2)), (torch.randn(32, 5),))
    torch.testing.assert_close(run(x), operator(x, 2), rtol=0, atol=4e-7)
    assert nodes <= most, nodes


@pytest.mark.parametrize("operator", [khot.sigmoid_topk, khot.sparse_topk])
def test_a_mask_a_temperature_and_a_budget_as_inputs(operator):
    def weights(x, k, temperature, mask):
        return operator(x, k, temperature=temperature, mask=mask)

    x, mask = torch.randn(4, 9), torch.rand(4, 9) < 0.7
    k, temperature = torch.tensor([0.0, 1.0, 2.5, 9.0]), torch.tensor(0.3)
    run, _ = exported(Function(weights), (x, torch.ones(4), torch.tensor(1.0), torch.ones(4, 9) > 0))
    torch.testing.assert_close(
        run(x, k, temperature, mask), weights(x, k, temperature, mask), rtol=0, atol=4e-7
    )


def test_the_batch_may_be_of_another_size():
    batch = torch.export.Dim("batch", min=2, max=1000)
    layer = nn.TopK(3, temperature=0.5)
    run, _ = exported(layer, (torch.randn(4, 12),), dynamic_shapes=({0: batch},))
    x = torch.randn(11, 12)
    torch.testing.assert_close(run(x), layer(x), rtol=0, atol=4e-7)


@pytest.mark.parametrize("method", ["sigmoid", "sparse"])
def test_a_network_with_a_layer(method):
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(6, 20),
        torch.nn.ReLU(),
        nn.TopK(4, method=method, temperature=0.3),
        torch.nn.Linear(20, 3),
    )
    x = torch.randn(5, 6)
    run, _ = exported(network, (torch.randn(5, 6),))
    torch.testing.assert_close(run(x), network(x).detach(), rtol=1e-5, atol=1e-6)


def test_a_transformer_with_fewer_tokens():
    torch.manual_seed(0)
    config = NetworkConfig(image_size=16, channels=3, classes=5, patch_size=4, width=16, depth=3, heads=2)
    model = VisionTransformer(config).eval()
    reduce_tokens(model, 0.5, (1,))
    images = torch.randn(3, 3, 16, 16)
    run, _ = exported(model, (torch.randn(3, 3, 16, 16),))
    torch.testing.assert_close(run(images), model(images).detach(), rtol=1e-4, atol=1e-5)


def test_ahead_of_time_by_inductor(tmp_path):
    """A shared library of a model with a TopK layer, on the CPU."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(6, 20), nn.TopK(4, temperature=0.3), torch.nn.Linear(20, 3)
    ).eval()
    program = torch.export.export(network, (torch.randn(5, 6),))
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    x = torch.randn(5, 6)
    with torch.no_grad():
        torch.testing.assert_close(
            torch._inductor.aoti_load_package(package)(x), network(x), rtol=1e-5, atol=1e-6
        )
