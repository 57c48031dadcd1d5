import pytest

from khot.compare.cost.side import load_side
from khot_bench.peers import PeerAbsent, all_peers, import_quietly


def test_an_absent_peer_says_how_to_get_it():
    with pytest.raises(PeerAbsent) as caught:
        import_quietly("surely_not_installed", name="peer.topk", package="peer==1.0", pip_options="--flag")
    assert caught.value.reason == "not installed"
    assert caught.value.install == "tools/set_up_peers.sh, or pip install --flag peer==1.0"
    assert "peer.topk is absent" in str(caught.value)


def test_a_broken_peer_is_absent_too(tmp_path, monkeypatch):
    (tmp_path / "broken_peer.py").write_text("print('hello')\nraise OSError('no shared library')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PeerAbsent, match="does not import: OSError: no shared library"):
        import_quietly("broken_peer", name="broken", package="broken")


def test_what_a_peer_prints_and_warns_on_import_is_kept_quiet(tmp_path, monkeypatch, capfd):
    (tmp_path / "talking_peer.py").write_text(
        "import warnings\nprint('hello')\nwarnings.warn('old')\nvalue = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert import_quietly("talking_peer", name="talking", package="talking").value == 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", all_peers())
def test_every_adapter_gives_a_side_or_says_what_is_missing(name):
    found = None
    try:
        found = load_side(all_peers()[name])
    except PeerAbsent as error:
        found = error
    assert "pip install" in found.install if isinstance(found, PeerAbsent) else found.kind == "peer"


def test_bisection_needs_no_package():
    assert load_side(all_peers()["bisection"]).map == "sigmoid"
