"""Operators have a compiled and a portable implementation; their tests run with both."""

import pytest

from khot.kernels import loader


@pytest.fixture(scope="module", params=["compiled", "portable"])
def implementation(request):
    """Which implementation runs; `compiled` is skipped without the library."""
    if request.param == "compiled":
        if loader.native() is None:
            pytest.skip(f"needs the compiled library: {loader.status().reason}")
        yield request.param
        return
    with pytest.MonkeyPatch.context() as patch:
        switched_off = loader.NativeStatus(False, "switched off by a test")
        patch.setattr(loader, "_decision", lambda: (None, switched_off, False))
        assert loader.native() is None
        yield request.param
