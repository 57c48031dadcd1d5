#!/bin/sh
# Build an environment beside .venv: khot and its laboratory (editable) with packages it is measured against.
#
#   tools/set_up_peers.sh [peers]      .venv-peers: other operators, for `make bench-peers` and tests/extra/peers
#   tools/set_up_peers.sh sae          .venv-sae: tools whose folders khot.apps.sae reads and writes: tests/extra/sae
#   tools/set_up_peers.sh selectors    .venv-selectors: for `khot reproduce features`, tests/extra/selectors
#   tools/set_up_peers.sh equations    .venv-equations: for `khot reproduce sindy` and `khot reproduce dictionary`
#   tools/set_up_peers.sh browser      .venv-browser: Playwright and axe-core, for tests/extra/browser
#   tools/set_up_peers.sh triton       .venv-triton: to interpret and compile the GPU kernels: tests/extra/triton
#
# Reads PYTHON=python3.11 and PIP_ARGS="--no-cache-dir". Each package is installed on its own, so one that fails
# does not stop the others; what failed is printed at the end, and is reported as absent where it would be used.
# A second call with nothing changed returns at once; FORCE=1 installs again (for instance to retry a failed one).
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
group=${1:-peers}
venv=$root/.venv-$group
stamp=$venv/set-up.stamp
constraints=$root/constraints.txt
python=${PYTHON:-python3}
pip_args=${PIP_ARGS:-}
force=${FORCE:-}

case $group in
    peers) extras='' ;;
    sae) extras='[apps]' ;;
    selectors) extras='[apps]' ;;
    equations) extras='[apps,sindy]' ;;
    browser) extras='[explore]' ;;
    triton) extras='' ;;
    *)
        printf 'set_up_peers.sh: one of peers, sae, selectors, equations, browser, triton, got %s\n' "$group" >&2
        exit 2
        ;;
esac

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

without_dependencies() {
    pip_install --no-deps "$@"
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

install_stg() {
    # It pins old versions of what is here already.
    pip_install six h5py lifelines && without_dependencies "$@"
}

install_axe() {
    npm install --silent --prefix "$venv" "$@"
}

case $group in
    peers)
        install_package entmax==1.3 pip_install
        install_package torchsort==0.1.10 install_torchsort
        install_package difftopk==0.2.0 pip_install
        install_package diffsort==0.2.0 pip_install
        install_package colt5-attention==0.11.2 pip_install
        install_package softtorch==0.1.1 install_softtorch
        install_package jaxopt==0.8.5 pip_install
        install_package POT==0.9.7.post1 pip_install  # for tests/extra/peers/test_migrating.py
        ;;
    sae)
        # What they import for folders of weights, and no more: their own lists bring CUDA packages and plotting.
        pip_install safetensors transformers einops natsort simple-parsing accelerate datasets jaxtyping beartype \
            better_abc fancy_einsum python-dotenv tenacity rich sentencepiece pandas nltk pyyaml babe==0.0.7 \
            schedulefree wandb plotly plotly-express zstandard
        install_package transformer-lens==3.9.0 without_dependencies
        install_package sae-lens==6.54.12 without_dependencies
        install_package eai-sparsify==1.3.3 without_dependencies
        install_package dictionary-learning==0.1.0 without_dependencies
        ;;
    selectors)
        install_package lassonet==0.0.21 pip_install
        install_package abess==0.4.11 pip_install
        install_package skscope==0.1.8 pip_install
        install_package boruta==0.4.3 pip_install
        install_package stg==0.1.2 install_stg
        install_package pytorch-metric-learning==2.9.0 pip_install
        install_package rdata==1.1.0 pip_install
        install_package ISLP==0.6.0 without_dependencies  # for its data alone
        ;;
    equations)
        install_package gurobipy==13.0.3 pip_install  # MIOSR, with its restricted licence
        install_package dysts==0.96 pip_install
        install_package ksvd==0.0.3 pip_install
        install_package spams-bin==2.6.14 pip_install
        install_package scikit-image==0.26.0 pip_install  # its pictures
        ;;
    browser)
        install_package playwright==1.65.2 pip_install  # drives the chromium of the system
        install_package axe-core@4.14.0 install_axe
        ;;
    triton)
        install_package triton==3.9.0 without_dependencies
        ;;
esac

# For tests/extra, not for measuring.
pip_install pytest pytest-xdist hypothesis || printf 'no pytest here: make test-extra skips the tests beside these packages\n'

printf 'installing khot and its laboratory (editable)\n'
(cd "$root" && pip_install --no-build-isolation --editable ".$extras" --editable ./benchmarks)

torch_after=$(torch_version)
if [ "$torch_before" != "$torch_after" ]; then
    printf 'A package replaced torch %s by %s: remove %s and find which.\n' \
        "$torch_before" "$torch_after" "$venv" >&2
    exit 1
fi

summary="environment of the $group: $venv
  torch $torch_after, khot $(installed_version khot)$report"
[ -z "$failed" ] || summary="$summary
  not installed:$failed (FORCE=1 tries again)"
printf '%s\n%s\n' "$wanted" "$summary" > "$stamp"
printf '%s\n' "$summary"
