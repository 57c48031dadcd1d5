"""Writes that are stopped at any point, or meet a full disk, leave the old file."""

import contextlib
import errno
import inspect
import itertools
import json
import os
import pathlib
import stat
import sys
from pathlib import Path

import pytest

from khot.files import whole
from khot.files.whole import check_writable, json_writer, replacing, write_json, write_text, write_together
from strategies.quick_run import costly

# The files of code that writes; `pathlib` is a folder from Python 3.13 on.
WRITING = {inspect.getfile(code) for code in (whole, pathlib.Path, contextlib)}

# Each child is killed at another line of the code that writes, the last one not at all. What it leaves must
# be the old files or the new ones, whole.
KILLED = """
import itertools, json, os, signal, sys, warnings
from pathlib import Path
import torch
from khot.files import whole
from khot.files import tensors
folder = Path({folder!r})
FILES = {{whole.__file__, tensors.__file__}}
{write}

def killed_at(line):
    seen = 0
    def trace(frame, event, argument):
        nonlocal seen
        if frame.f_code.co_filename not in FILES:
            return None
        seen += event == "line"
        if seen == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)

write("old")
states = []
for line in itertools.count(1):
    child = os.fork()
    if child == 0:
        killed_at(line)
        write("new")
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    states.append(read())
    if code == 0:
        break
    assert code == -signal.SIGKILL
    if states[-1] == "new":
        write("old")
print(json.dumps(states))
"""

TEXT = """
def write(what): whole.write_text(what * 100_000, folder / "file")
def read():
    text = (folder / "file").read_text()
    assert text in ("old" * 100_000, "new" * 100_000)
    return text[:3]
"""
NETWORK = """
from khot.vision import from_config, load_network, preset, save_network
def network(what):
    torch.manual_seed(0)
    made = from_config(preset("digits", depth=1, width=16))
    with torch.no_grad():
        made.head.bias.fill_(1.0 if what == "new" else 0.0)
        made.norm.bias.fill_(1.0 if what == "new" else 0.0)
    return made
def write(what): save_network(network(what), folder)
def read():
    loaded = load_network(folder)
    return next(what for what in ("old", "new")
                if all(torch.equal(a, b) for a, b in zip(loaded.parameters(), network(what).parameters())))
"""


@pytest.mark.parametrize(("write", "least"), [(TEXT, 20), costly(NETWORK, 40)], ids=["text", "network"])
def test_a_kill_at_any_line_leaves_the_old_file_or_the_new_one(write, least, run_python, tmp_path):
    states = json.loads(run_python(KILLED.format(folder=str(tmp_path), write=write)))
    assert len(states) > least
    assert states[0] == "old"
    assert states[-1] == "new"
    assert states == sorted(states, reverse=True), "new after the last rename, and not before"


@pytest.fixture
def full_disk(monkeypatch):
    """Temporary files are on a device that is full: what they are given is refused with ENOSPC."""

    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    monkeypatch.setattr(Path, "touch", lambda temporary, exist_ok: temporary.symlink_to("/dev/full"))


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_reported_and_nothing_is_lost(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def by_hand():
        with replacing(path) as temporary, temporary.open("wb") as file:
            file.write(b"new" * 100_000)

    for write in (lambda: write_text("new", path), lambda: write_json([1, 2], path), by_hand):
        with pytest.raises(
            OSError, match=r"file could not be written and is as before: No space left"
        ) as error:
            write()
        assert error.value.errno == errno.ENOSPC
        assert path.read_text() == "old"
        assert os.listdir(tmp_path) == ["file"]


LIMITED = """
import errno, resource
from pathlib import Path
import numpy, torch
from khot.apps.sae import SparseAutoencoder, collect_activations
from khot.vision import from_config, preset, save_network
from khot.files.whole import write_json
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
folder = Path({folder!r})
network = torch.nn.Sequential(torch.nn.Identity())
for name, write in {{
    "json": lambda to: write_json(list(range(5000)), to / "file.json"),
    "network": lambda to: save_network(from_config(preset("digits")), to),
    "saelens": lambda to: SparseAutoencoder(32, 256, 3).save(to),
    "sparsify": lambda to: SparseAutoencoder(32, 256, 3).save(to, "sparsify"),
    "activations": lambda to: collect_activations(network, "0", torch.ones(1, 100, 100), to),
}}.items():
    try:
        write(folder / name)
        print(name, "was written")
    except OSError as error:
        assert "could not be written and is as before" in str(error), error
        reason = None if name == "activations" else errno.EFBIG  # NumPy does not say why
        assert error.errno == reason, error
    left = list((folder / name).iterdir())
    assert left == [], left
print("done")
"""


def test_a_disk_that_fills_half_way_is_reported_for_every_kind_of_file(run_python, tmp_path):
    assert run_python(LIMITED.format(folder=str(tmp_path))) == "done"


def interrupted_at(step):
    """Ctrl-C before an instruction of the code that writes, which counts from 1."""
    seen = 0

    def trace(frame, event, argument):
        nonlocal seen
        if frame.f_code.co_filename not in WRITING:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            seen += 1
            if seen == step:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)


def by_hand(path, text):
    with replacing(path) as temporary:
        temporary.write_text(text)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "write", [lambda path, text: write_text(text, path), by_hand], ids=["text", "by hand"]
)
def test_ctrl_c_at_any_instruction_leaves_the_old_file_or_the_new_one_and_no_other(write, tmp_path):
    """Also where a system call has just returned, which is where it is most often noticed.

    A file object whose opening was stopped is closed by the garbage collector, with a warning.
    """
    path, before, found = tmp_path / "file", sys.gettrace(), []
    for step in itertools.count(1):
        path.write_text("old")
        stopped = True
        try:
            interrupted_at(step)
            write(path, "new")
            stopped = False
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        assert os.listdir(tmp_path) == ["file"], f"at instruction {step}"
        found.append(path.read_text())
        if not stopped:
            break
    assert len(found) > 400
    assert found == sorted(found, reverse=True)
    assert set(found) == {"old", "new"}


def test_files_that_belong_together_are_replaced_together(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    write_together({first: json_writer(1), second: json_writer(1)})

    def fails(file):
        file.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_together({first: json_writer(2), second: fails})
    assert [json.loads(path.read_text()) for path in (first, second)] == [1, 1]
    assert sorted(os.listdir(tmp_path)) == ["first", "second"]


def test_what_json_lacks_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(float("nan"), tmp_path / "new" / "file")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_who_may_read_a_file_is_not_changed(umask, tmp_path):
    path, private = tmp_path / "file", tmp_path / "private"
    private.write_text("old")
    private.chmod(0o600)
    before = os.umask(umask)
    try:
        write_text("new", path)
        write_text("new", private)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    path.chmod(0o664)
    write_text("newer", path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o664


def test_a_trial_says_what_cannot_be_written_and_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "there").mkdir()
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    before = sorted(tmp_path.rglob("*"))
    for folder in ("there", "new", "new/below/it"):
        check_writable("save", "folder", tmp_path / folder)
    wrong = ("file", "file/below", "broken", "broken/below")
    for folder in (*(tmp_path / name for name in wrong), Path("/proc/nope/below")):
        with pytest.raises(
            OSError, match="save: folder must be a folder that can be written to, got"
        ) as found:
            check_writable("save", "folder", folder)
        assert str(folder) in str(found.value)
    assert sorted(tmp_path.rglob("*")) == before
