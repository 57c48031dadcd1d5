#!/bin/sh
# Runs the tests that need more than .venv, a folder of tests/extra each; says what is skipped and why.
set -eu
cd "$(dirname "$0")/.."
python=.venv/bin/python
workers=''
failed=''

# usage: group NAME FOLDER HINT COMMAND…: the command says whether what the group needs is there.
group() {
    name=$1 folder=tests/extra/$2 hint=$3
    shift 3
    if ! "$@" >/dev/null 2>&1; then
        echo "test-extra: $name: skipped ($hint)"
    else
        echo "test-extra: $name"
        # shellcheck disable=SC2086
        "$python" -m pytest $workers "$folder" || failed="$failed $folder"
    fi
}

group R r 'committed values are checked also without R' true
group browser browser/test_compare_page.py 'no browser: apt-get install chromium' command -v chromium
group 'several processes' processes 'this torch has no torch.distributed' \
    "$python" -c 'import sys, torch.distributed as d; sys.exit(not d.is_available())'
group 'JAX and ONNX' doors 'not installed: pip install "khot[jax,onnx]"' \
    "$python" -c 'import jax, onnxruntime, onnxscript'
python=.venv-triton/bin/python
workers='-n logical'
group Triton triton 'no .venv-triton: tools/set_up_peers.sh triton' "$python" -c 'import pytest, triton, xdist'
workers=''
python=.venv-peers/bin/python
group peers peers 'no .venv-peers with pytest: tools/set_up_peers.sh' \
    "$python" -c 'import hypothesis, pytest'
python=.venv-equations/bin/python
group 'equations and dictionaries' equations 'no .venv-equations with pytest: tools/set_up_peers.sh equations' \
    "$python" -c 'import pytest, gurobipy, dysts, ksvd, spams, skimage'
python=.venv-selectors/bin/python
group 'selectors and metric learning' selectors 'no .venv-selectors with pytest: tools/set_up_peers.sh selectors' \
    "$python" -c 'import hypothesis, pytest'
python=.venv-browser/bin/python
group explorer browser/test_explorer.py \
    'no .venv-browser, or no browser: tools/set_up_peers.sh browser, apt-get install chromium' \
    sh -c "command -v chromium && $python -c 'import playwright, pytest, starlette'"
python=.venv-sae/bin/python
group autoencoders sae 'no .venv-sae: tools/set_up_peers.sh sae' \
    "$python" -c 'import pytest, sae_lens, sparsify'

[ -z "$failed" ] || {
    echo "test-extra: failed:$failed" >&2
    exit 1
}
