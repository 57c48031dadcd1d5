"""`khot explore` serves on this machine, and says what is missing."""

import builtins
import sys

import pytest
from typer.testing import CliRunner

from khot.cli.explore import app
from khot.explore.server import listen


@pytest.fixture
def served(monkeypatch):
    """What would be served; nothing is."""
    import uvicorn

    found = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: found.append(sockets[0]))
    monkeypatch.setattr("webbrowser.open", lambda url: found.append(url))
    yield found
    for one in found:
        if not isinstance(one, str):
            one.close()


def test_it_says_where_it_is_and_opens_it(served):
    done = CliRunner().invoke(app, [])
    url, socket = served
    assert done.exit_code == 0
    assert f"at {url}; Ctrl-C ends it" in done.output
    assert url == f"http://127.0.0.1:{socket.getsockname()[1]}/"


def test_without_a_browser(served):
    CliRunner().invoke(app, ["--no-browser"])
    assert [type(one) for one in served] != [str]
    assert len(served) == 1


def test_a_port_that_is_taken(served):
    with listen(0) as taken:
        taken.listen()
        done = CliRunner().invoke(app, ["--port", str(taken.getsockname()[1])])
    assert done.exit_code == 2
    assert "cannot be used" in done.output
    assert served == []


def test_the_extra_is_named_when_it_is_missing(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == "uvicorn":
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "uvicorn", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    done = CliRunner().invoke(app, [])
    assert done.exit_code == 1
    assert 'pip install "khot[explore]"' in done.output
