import pytest
import torch

from khot.compare.cost.calls import NoGradient, prepare
from khot.compare.cost.case import SCORES, Case
from khot.compare.cost.side import load_side
from strategies import known_sides


@pytest.mark.parametrize("scores", SCORES)
def test_input_is_seeded_and_of_the_asked_kind(scores):
    case = Case("c", (3, 50), 2, dtype="float64", scores=scores)
    assert case.make().shape == (3, 50)
    assert case.make().dtype == torch.float64
    assert torch.equal(case.make(), case.make())
    assert not torch.equal(case.make(), Case("c", (3, 50), 2, "float64", scores, seed=1).make())


def test_kinds_of_scores_differ():
    draws = {kind: Case("c", (2, 100), 2, scores=kind).make() for kind in SCORES}
    assert draws["ties"].unique().numel() <= 4
    assert torch.equal(draws["sorted"], draws["sorted"].sort(-1, descending=True).values)
    assert draws["uniform"].min() >= 0
    assert draws["cauchy"].abs().max() > draws["gaussian"].abs().max()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores": "odd"}, "'gaussian', 'uniform'"),
        ({"dtype": "int8"}, "'float16', 'bfloat16'"),
        ({"k": 0}, "k must"),
        ({"k": 9}, "k must"),
    ],
)
def test_bad_case_names_the_rule(options, message):
    with pytest.raises(ValueError, match=message):
        Case(**{"name": "c", "shape": (2, 8), "k": 2, **options})


def test_shrunk_keeps_the_kind():
    small = Case("c", (64, 1000), 300, "float64", "ties").shrunk()
    assert small.shape == (2, 16)
    assert small.k == 4
    assert (small.dtype, small.scores) == ("float64", "ties")


def test_label_names_what_is_unusual():
    assert Case("2×8", (2, 8), 3).label == "2×8 k=3"
    assert Case("2×8", (2, 8), 3, "float16", "ties").label == "2×8 k=3 float16 ties"


@pytest.mark.parametrize("source", ["nowhere", "a:b:c:d"])
def test_bad_source_says_how_it_reads(source):
    with pytest.raises(ValueError, match="module:function"):
        load_side(source)


def test_source_must_give_a_side():
    with pytest.raises(TypeError, match="must give a Side"):
        load_side("builtins:list")


def test_source_with_an_argument():
    side = load_side("khot.compare.cost.side:relaxation:sigmoid")
    assert side.name == "khot.sigmoid_topk"
    assert side.map == "sigmoid"


def test_backward_of_a_constant_is_no_gradient():
    call = prepare(known_sides.hard(), known_sides.CASE.make(), 5, "forward+backward")
    with pytest.raises(NoGradient, match="hard has no gradient"):
        call()
