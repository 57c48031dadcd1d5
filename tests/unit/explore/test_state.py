"""A link is read as it says, or refused by the name of what is wrong."""

import pytest

from khot.explore.state import BadParameter, State, read_state


def test_a_whole_link():
    given = {
        "scores": "1.5,-2,0",
        "k": "1.5",
        "temperature": "0.2",
        "methods": "sigmoid,sparse",
        "designs": "systematic",
        "loss": "entropy",
        "draws": "10",
        "seed": "3",
    }
    expected = State((1.5, -2.0, 0.0), 1.5, 0.2, ("sigmoid", "sparse"), ("systematic",), "entropy", 10, 3)
    assert read_state(given) == expected


def test_what_is_left_out_has_a_default():
    state = read_state({"scores": "1,2", "k": "1"})
    assert (state.temperature, state.methods, state.designs) == (0.5, ("sigmoid",), ())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"scores": "1"}, "scores must be 2 to 64 numbers with commas between; got '1 numbers'"),
        ({"scores": ",".join(["1"] * 65)}, "scores must be 2 to 64 numbers"),
        ({"scores": "1,x,2"}, "scores must be numbers from −100 to 100; got 'x'"),
        ({"scores": "1,nan,2"}, "got 'nan'"),
        ({"scores": "1,1e9,2"}, "got '1e9'"),
        ({"k": "-1"}, "k must be a number from 0 to n = 3; got '-1'"),
        ({"k": "3.01"}, "k must be a number from 0 to n = 3"),
        ({"k": "inf"}, "k must be"),
        ({"temperature": "0"}, "temperature must be a number from 0.001 to 100; got '0'"),
        ({"methods": ""}, "methods must be 1 to 4 of the known names"),
        ({"methods": "sigmoid,laplace,sparse,normal,network"}, "methods must be 1 to 4"),
        ({"methods": "../../etc/passwd"}, "methods must be out of"),
        ({"designs": "dice"}, "designs must be out of"),
        ({"loss": "hinge"}, "loss must be out of runner_up, position, entropy, square; got 'hinge'"),
        ({"draws": "5001"}, "draws must be a whole number from 1 to 5000; got '5001'"),
        ({"draws": "٣"}, "draws must be a whole number"),
        ({"seed": "-1"}, "seed must be a whole number"),
        ({"file": "x"}, "a parameter must be one of scores, k"),
        ({"methods": "x" * 2001}, "methods must be at most 2000 characters long"),
    ],
)
def test_every_rule(changed, words):
    with pytest.raises(BadParameter) as caught:
        read_state({"scores": "1,2,3", "k": "1", **changed})
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("missing", ["scores", "k"])
def test_scores_and_k_must_be_there(missing):
    given = {"scores": "1,2,3", "k": "1"}
    del given[missing]
    with pytest.raises(BadParameter, match=f"{missing} must be given"):
        read_state(given)
