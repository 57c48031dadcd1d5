"""What the 'Units' lines and the pages of the operators say about temperatures is so."""

import inspect
import re
from pathlib import Path

import pytest
import torch

import khot
from khot.metrics import weight_on_topk
from khot.relaxations import registry

PAGES = Path(__file__).parents[3] / "docs" / "operators"
CLAIM = re.compile(r'`khot\.topk\(torch\.randn\(784\), 10(?:, "(\w+)")?\)` puts about (\d+) %')
CLAIMED = [
    (page.name, method or "sigmoid", int(percent))
    for page in sorted(PAGES.glob("*.md"))
    for method, percent in CLAIM.findall(page.read_text("utf-8").replace("\n", " "))
]
POWERS = {"iterative": 2}  # of the scores' scale in the temperature's; 1 for all others
OTHERWISE = {"gumbel", "successive_softmax"}  # scores are log weights, and have a scale of their own


@pytest.mark.parametrize("method", registry.names())
def test_every_operator_says_what_its_temperature_is_divided_into(method):
    assert "\nUnits: the temperature " in (inspect.getdoc(registry.get(method).weights) or "")


@pytest.mark.parametrize("method", [name for name in registry.names() if name not in OTHERWISE])
@pytest.mark.parametrize("scale", [0.01, 300.0])
def test_scores_in_other_units_want_the_temperature_in_them_too(method, scale):
    x = torch.randn(3, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    options = {"window": 0.4} if method in ("pairwise", "soft_rank") else {}  # in ranks, which have no units

    def weights(x: torch.Tensor, temperature: float) -> torch.Tensor:
        random = {"generator": torch.Generator().manual_seed(0)} if registry.get(method).stochastic else {}
        return khot.topk(x, 3, method, temperature=temperature, **options, **random)

    expected = weights(x, 0.7)
    torch.testing.assert_close(weights(scale * x, 0.7 * scale ** POWERS.get(method, 1)), expected)
    assert not torch.allclose(weights(scale * x, 0.7), expected, atol=1e-3)


def test_the_pages_claim_something():
    assert {method for _, method, _ in CLAIMED} >= set(registry.names()) - {"gumbel"}


@pytest.mark.parametrize(("page", "method", "percent"), CLAIMED)
def test_how_blunt_the_default_temperature_is(page, method, percent):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 784, generator=generator)
    random = {"generator": generator} if registry.get(method).stochastic else {}
    share = weight_on_topk(khot.topk(x, 10, method, **random), x, 10).mean().item()
    assert 100 * share == pytest.approx(percent, abs=1.5), page
