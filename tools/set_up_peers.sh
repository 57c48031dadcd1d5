#!/bin/sh
# Build .venv-peers: khot and its laboratory (editable) beside the packages it is measured against.
#
#   PYTHON=python3.11 PIP_ARGS="--no-cache-dir" tools/set_up_peers.sh
#
# Each peer is installed on its own, so one that fails does not stop the others; what failed is
# printed at the end and `khot bench` reports it as absent. A second call with nothing changed
# returns at once; FORCE=1 installs again (for instance to retry a failed peer).
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
venv=$root/.venv-peers
stamp=$venv/peers.stamp
constraints=$root/constraints.txt
python=${PYTHON:-python3}
pip_args=${PIP_ARGS:-}
force=${FORCE:-}

# The stamp stands for everything that decides what is installed.
version=$("$python" -c 'import sys; print(sys.version)')
wanted=$({
    cat "$root/tools/set_up_peers.sh" "$constraints" "$root/pyproject.toml" "$root/benchmarks/pyproject.toml"
    printf '%s\n' "$version" "$pip_args"
} | cksum)

if [ -z "$force" ] && [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" = "$wanted" ]; then
    tail -n +2 "$stamp"
    exit 0
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
rm -f "$stamp"

# PIP_ARGS is a list of words: splitting it is meant.
# shellcheck disable=SC2086
pip_install() {
    "$venv/bin/python" -m pip install --quiet $pip_args -c "$constraints" "$@"
}

torch_version() {
    "$venv/bin/python" -c 'import torch; print(torch.__version__)'
}

installed_version() {
    "$venv/bin/python" -c 'import sys, importlib.metadata as m; print(m.version(sys.argv[1]))' "$1"
}

# torchsort builds a CUDA extension whenever it finds nvcc, which fails against a CPU build of torch:
# a PATH without the folders that hold nvcc.
path_without_nvcc() {
    kept=
    old_ifs=$IFS
    IFS=:
    for folder in $PATH; do
        [ -x "$folder/nvcc" ] || kept=${kept:+$kept:}$folder
    done
    IFS=$old_ifs
    printf '%s' "$kept"
}

# Exactly this torch, and nothing that asks for a range: a range would fetch the CUDA build.
pip_install --upgrade setuptools wheel
pip_install "$(grep '^torch==' "$constraints")"
torch_before=$(torch_version)

report=
failed=
install_peer() {
    requirement=$1
    shift
    printf 'installing %s\n' "$requirement"
    if "$@" "$requirement"; then
        report="$report
  $requirement installed"
    else
        failed="$failed $requirement"
        report="$report
  $requirement FAILED (the messages above say why)"
    fi
}

install_torchsort() {
    # A subshell, because whether `VAR=x function` outlives the call is left open by POSIX.
    (
        PATH=$(path_without_nvcc)
        export PATH
        unset CUDA_HOME CUDA_PATH
        pip_install --no-build-isolation "$@"
    )
}

install_softtorch() {
    # It declares Python >= 3.12, but runs on 3.10 and 3.11.
    pip_install --ignore-requires-python "$@"
}

install_peer entmax==1.3 pip_install
install_peer torchsort==0.1.10 install_torchsort
install_peer difftopk==0.2.0 pip_install
install_peer diffsort==0.2.0 pip_install
install_peer colt5-attention==0.11.2 pip_install
install_peer softtorch==0.1.1 install_softtorch
install_peer jaxopt==0.8.5 pip_install

# For tests/extra/peers, not for measuring.
pip_install pytest hypothesis || printf 'no pytest here: make test-extra skips the tests beside the peers\n'

printf 'installing khot and its laboratory (editable)\n'
(cd "$root" && pip_install --no-build-isolation --editable . --editable ./benchmarks)

torch_after=$(torch_version)
if [ "$torch_before" != "$torch_after" ]; then
    printf 'A peer replaced torch %s by %s: remove %s and find which.\n' \
        "$torch_before" "$torch_after" "$venv" >&2
    exit 1
fi

summary="peers' environment: $venv
  torch $torch_after, khot $(installed_version khot)$report"
[ -z "$failed" ] || summary="$summary
  not installed:$failed (FORCE=1 tries again)"
printf '%s\n%s\n' "$wanted" "$summary" > "$stamp"
printf '%s\n' "$summary"
