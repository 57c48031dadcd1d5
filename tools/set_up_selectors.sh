#!/bin/sh
# Build .venv-selectors: khot and its laboratory (editable) beside the packages that `khot reproduce features` and
# `khot reproduce neighbors` compare with, and the data of those that carry some.
#
#   PYTHON=python3.11 PIP_ARGS="--no-cache-dir" tools/set_up_selectors.sh
#
# Each package is installed on its own, so one that fails does not stop the others; what failed is printed at
# the end and the experiments report it as absent. A second call with nothing changed returns at once;
# FORCE=1 installs again.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
venv=$root/.venv-selectors
stamp=$venv/selectors.stamp
constraints=$root/constraints.txt
python=${PYTHON:-python3}
pip_args=${PIP_ARGS:-}
force=${FORCE:-}

version=$("$python" -c 'import sys; print(sys.version)')
wanted=$({
    cat "$root/tools/set_up_selectors.sh" "$constraints" "$root/pyproject.toml" "$root/benchmarks/pyproject.toml"
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

# Exactly this torch, and nothing that asks for a range: a range would fetch the CUDA build.
pip_install --upgrade setuptools wheel
pip_install "$(grep '^torch==' "$constraints")"
torch_before=$(torch_version)

report=
failed=
install_package() {
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

# ISLP is taken for its data alone; stg pins old versions of what is here already.
without_dependencies() {
    pip_install --no-deps "$@"
}

install_stg() {
    pip_install six h5py lifelines && without_dependencies "$@"
}

install_package lassonet==0.0.21 pip_install
install_package abess==0.4.11 pip_install
install_package skscope==0.1.8 pip_install
install_package boruta==0.4.3 pip_install
install_package stg==0.1.2 install_stg
install_package pytorch-metric-learning==2.9.0 pip_install
install_package rdata==1.1.0 pip_install
install_package ISLP==0.6.0 without_dependencies

# For tests/extra/selectors, not for measuring.
pip_install pytest hypothesis || printf 'no pytest here: make test-extra skips the tests beside these packages\n'

printf 'installing khot and its laboratory (editable)\n'
(cd "$root" && pip_install --no-build-isolation --editable ".[apps]" --editable ./benchmarks)

torch_after=$(torch_version)
if [ "$torch_before" != "$torch_after" ]; then
    printf 'A package replaced torch %s by %s: remove %s and find which.\n' \
        "$torch_before" "$torch_after" "$venv" >&2
    exit 1
fi

summary="selectors' environment: $venv
  torch $torch_after$report"
[ -z "$failed" ] || summary="$summary
  not installed:$failed (FORCE=1 tries again)"
printf '%s\n%s\n' "$wanted" "$summary" > "$stamp"
printf '%s\n' "$summary"
