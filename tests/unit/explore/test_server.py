"""The server answers with khot's numbers, refuses what is not right, and guards every answer."""

import math

import pytest
import torch
from starlette.testclient import TestClient

import khot
from khot.explore.server import HEADERS, application, listen
from khot.relaxations import registry

SCORES = [2.0, 0.5, 1.0, -1.0]
ASKED = {"scores": ",".join(map(str, SCORES)), "k": "2", "temperature": "0.5"}


@pytest.fixture(scope="module")
def client():
    return TestClient(application(), base_url="http://127.0.0.1:8000")


def operator(client, **changed):
    answer = client.get("/compute", params={**ASKED, **changed})
    assert answer.status_code == 200, answer.text
    return answer.json()["operators"][0]


def numbers(found):
    rows = [found["weights"], found["gradient"], *found["jacobian"]]
    return [x for row in rows for x in row]


def test_the_page_and_its_parts(client):
    page = client.get("/")
    assert page.status_code == 200
    assert '<script src="explore.js" defer>' in page.text
    for part in ("explore.css", "explore.js", "plotly.js"):
        assert client.get(f"/{part}").status_code == 200
    assert "//" not in page.text.replace("http://www.w3.org", "")  # nothing from elsewhere


def test_weights_jacobian_and_gradient_are_those_of_khot(client):
    found = operator(client, loss="square")
    x = torch.tensor(SCORES, dtype=torch.float64, requires_grad=True)
    y = khot.sigmoid_topk(x, 2, temperature=0.5)
    jacobian = torch.autograd.functional.jacobian(lambda s: khot.sigmoid_topk(s, 2, temperature=0.5), x)
    (gradient,) = torch.autograd.grad(y.square().sum() / 2, x)
    for field, expected in (("weights", y), ("jacobian", jacobian), ("gradient", gradient)):
        torch.testing.assert_close(torch.tensor(found[field], dtype=x.dtype), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("loss", ["runner_up", "position", "entropy", "square"])
def test_every_loss_has_a_gradient(client, loss):
    found = operator(client, loss=loss)
    assert any(abs(x) > 1e-3 for x in found["gradient"])


def test_every_operator_answers(client):
    for name in registry.names():
        found = operator(client, methods=name)
        assert "error" not in found, name
        assert found["sum"] == pytest.approx(2, abs=1e-5), name
        assert all(map(math.isfinite, numbers(found))), name


@pytest.mark.parametrize("k", ["0", "4"])
def test_nothing_and_everything(client, k):
    assert operator(client, k=k)["weights"] == [float(k) / 4] * 4


def test_an_operator_that_needs_a_whole_k_says_so_beside_the_others(client):
    answer = client.get("/compute", params={**ASKED, "k": "1.5", "methods": "softsort,sigmoid"}).json()
    assert answer["operators"][0]["error"] == "softsort: k must be a whole number, got 1.5"
    assert answer["operators"][1]["sum"] == pytest.approx(1.5)


def test_every_design_answers_and_exact_ones_are(client):
    for name in khot.designs.names():
        answer = client.get("/compute", params={**ASKED, "designs": name, "draws": "4000"}).json()
        (found,) = answer["designs"]
        assert "error" not in found, name
        assert {sum(x) for x in found["samples"]} == {2}, name
        if found["exact"] and name != "plackett_luce":
            assert found["frequency"] == pytest.approx(found["probs"], abs=0.05), name


@pytest.mark.parametrize(
    ("changed", "parameter"), [({"k": "9"}, "k"), ({"methods": "x"}, "methods"), ({"scores": ""}, "scores")]
)
def test_bad_parameters_are_422(client, changed, parameter):
    answer = client.get("/compute", params={**ASKED, **changed})
    assert answer.status_code == 422
    assert answer.json()["parameter"] == parameter
    assert parameter in answer.json()["error"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_another_host_is_refused(client, host):
    assert client.get("/compute", params=ASKED, headers={"host": host}).status_code == 400


@pytest.mark.parametrize("path", ["/", "/compute", "/nothing", "/../pyproject.toml", "/explore.js"])
def test_every_answer_has_the_headers(client, path):
    answer = client.get(path)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe-eval" not in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/page.html", "/local.js", "/..%2f..%2fpyproject.toml", "/page/explore.js"])
def test_there_are_no_other_files(client, path):
    assert client.get(path).status_code == 404


def test_only_get(client):
    assert client.post("/compute", data=ASKED).status_code == 405


def test_it_listens_here_alone_at_a_free_port():
    with listen(0) as one, listen(0) as other:
        assert one.getsockname()[0] == "127.0.0.1"
        assert one.getsockname()[1] != other.getsockname()[1]
