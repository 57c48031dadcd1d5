"""Triton's interpreter, on the CPU: it must be chosen before the kernels are imported."""

import os

import pytest

from khot.kernels import loader, triton

os.environ["TRITON_INTERPRET"] = os.environ["KHOT_TRITON"] = "1"
triton.switched_on.cache_clear()
triton.interpreted.cache_clear()


@pytest.fixture(params=["one program a row", "several"])
def programs(request, monkeypatch):
    """Rows of more than 32 entries are several blocks, of one program or of several."""
    from khot.kernels.triton import rows

    several = request.param == "several"
    monkeypatch.setattr(rows, "LARGEST_BLOCK", 16 if several else 32)
    monkeypatch.setattr(rows, "LONG", 32 if several else 10**6)


@pytest.fixture
def in_the_operators(monkeypatch):
    """Tensors on the CPU take the way of those on a GPU: without the compiled library."""
    absent = (None, loader.NativeStatus(False, "switched off by the test"), False)
    monkeypatch.setattr(loader, "_decision", lambda: absent)
