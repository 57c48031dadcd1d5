#!/bin/sh
# Makes .venv ready for the targets of the Makefile; silent and quick when it is ready already.
#
# usage: tools/set_up_venv.sh [docs]
# Reads PYTHON, TORCH, PIP_ARGS (see `make help`), KHOT_NO_NATIVE and KHOT_REQUIRE_NATIVE.
#
# A step is done when its stamp holds its key. A stamp is removed before its step begins and written
# after it ends, so an interrupted step is done again by the next call.
set -eu
cd "$(dirname "$0")/.."

python=.venv/bin/python
stamp=.venv/set-up.stamp
docs_stamp=.venv/set-up-docs.stamp
native_stamp=.venv/set-up-native.stamp
options=.venv/set-up.options
log=.venv/set-up.log
native_log=.venv/set-up-native.log

say() { printf 'set-up: %s\n' "$*"; }

die() {
    printf 'set-up: %s\n' "$*" >&2
    exit 1
}

show_tail() { tail -n 15 "$1" | sed 's/^/    /' >&2; }

show_errors() {
    grep -E '(error|Error):' "$1" | awk '!seen[$0]++' | head -n 8 | sed 's/^/    /' >&2
}

# The same rule as in setup.py.
switched_on() { [ -n "$1" ] && [ "$1" != 0 ]; }

stamped() { [ -f "$1" ] && [ "$(cat "$1")" = "$2" ]; }

write_stamp() {
    printf '%s\n' "$2" >"$1.new"
    mv "$1.new" "$1"
}

# Two calls of make in one folder take turns.
take_turn() {
    command -v flock >/dev/null 2>&1 || return 0
    exec 9<tools/set_up_venv.sh
    flock -n 9 && return 0
    say "waiting for another set-up in this folder"
    flock 9 || :
}

# TORCH and PIP_ARGS of the last set-up that worked hold until others are given: `make venv PIP_ARGS=…` and then
# `make test` must not fall back to another package index.
remember_options() {
    last_torch='' last_pip_args=''
    if [ -f "$options" ]; then
        { IFS= read -r last_torch && IFS= read -r last_pip_args; } <"$options" || :
    fi
    TORCH=${TORCH:-$last_torch}
    PIP_ARGS=${PIP_ARGS:-$last_pip_args}
}

# What the interpreter must do is written so that Python 2.7 and 3.6 understand it too.
check_interpreter() {
    command -v "$PYTHON" >/dev/null 2>&1 ||
        die "PYTHON=$PYTHON is not there: install Python 3.10 or newer, or name one: make venv PYTHON=/path/to/python3"
    version=$("$PYTHON" -c 'import sys; sys.stdout.write("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
        die "PYTHON=$PYTHON does not run: name a Python 3.10 or newer that does: make venv PYTHON=/path/to/python3"
    case $version in
        3.1[0-9] | 3.[2-9][0-9]) ;;
        *) die "Python $version ($PYTHON) is too old, khot needs 3.10 or newer: make venv PYTHON=/path/to/python3.11" ;;
    esac
    "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
        die "Python $version ($PYTHON) cannot make environments: apt-get install python3-venv, then run make again"
}

describe() {
    "$1" -c 'import sys; print("%s %s" % (sys.version.split()[0], sys.base_prefix))' 2>/dev/null
}

# Keeps a .venv that has a working Python and pip, of the interpreter asked for; makes it anew otherwise.
make_environment() {
    if [ -x "$python" ] && "$python" -m pip --version >/dev/null 2>&1; then
        [ -n "${PYTHON:-}" ] || return 0
        check_interpreter
        [ "$(describe "$python")" != "$(describe "$PYTHON")" ] || return 0
    fi
    PYTHON=${PYTHON:-python3}
    check_interpreter
    say "making .venv with Python $version"
    rm -f "$stamp" "$docs_stamp" "$native_stamp"
    if ! output=$("$PYTHON" -m venv --clear .venv 2>&1); then
        mkdir -p .venv
        printf '%s\n' "$output" >"$log"
        show_tail "$log"
        die "$PYTHON -m venv failed: apt-get install python3-venv, or see $log"
    fi
}

# pip takes a package whose installation was cut short for installed once it has metadata; the file
# RECORD is written last, so what lacks it is half there.
forget_half_installed() {
    for package in .venv/lib/python*/site-packages/*.dist-info; do
        if [ -d "$package" ] && [ ! -f "$package/RECORD" ]; then rm -rf "$package"; fi
    done
    rm -rf .venv/lib/python*/site-packages/~*
}

# usage: install EXTRA. One call of pip for everything, khot and its laboratory, so that it solves everything
# together. TORCH takes the place of the pin of torch. The kernels are compiled by compile_kernels, not here.
install() {
    extra=$1
    pins=constraints.txt
    if [ -n "$TORCH" ]; then
        pins=.venv/constraints.txt
        grep -v '^torch==' constraints.txt >"$pins"
    fi
    eval "set -- $PIP_ARGS"
    if ! KHOT_NO_NATIVE=1 "$python" -m pip install --disable-pip-version-check --no-input "$@" \
        -c "$pins" ${TORCH:+"$TORCH"} "setuptools>=77" -e ".[$extra]" -e ./benchmarks >"$log" 2>&1; then
        show_tail "$log"
        die "pip failed (no network? see PIP_ARGS in \`make help\`, then run make again); the whole log: $log"
    fi
}

# By its path, so that a mistake in the Python part of khot is not taken for one in csrc.
kernels_load() {
    "$python" - <<'END'
import glob
import importlib.util

import torch  # first, so that both share one OpenMP runtime

spec = importlib.util.spec_from_file_location("khot._native", *glob.glob("src/khot/_native*.so"))
spec.loader.exec_module(importlib.util.module_from_spec(spec))
END
}

first_that_fails() {
    for compiler in \
        "${CC:-$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("CC") or "cc")')}" \
        "${CXX:-$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("CXX") or "c++")')}"; do
        if ! echo 'int main() { return 0; }' | $compiler -x c++ -fsyntax-only - >/dev/null 2>&1; then
            echo "$compiler"
            return
        fi
    done
}

without_kernels() {
    ! switched_on "${KHOT_REQUIRE_NATIVE:-}" || die "KHOT_REQUIRE_NATIVE is set, but $1: $2, then run make again"
    say "$1: khot works on the portable path, only slower; for the kernels: $2, then run make again"
}

compile_kernels() {
    if switched_on "${KHOT_NO_NATIVE:-}"; then
        ! switched_on "${KHOT_REQUIRE_NATIVE:-}" ||
            die "KHOT_NO_NATIVE and KHOT_REQUIRE_NATIVE contradict each other: unset one"
        return 0
    fi
    sources=$(find csrc setup.py -type f -exec cksum {} + | LC_ALL=C sort | cksum)
    if ls src/khot/_native*.so >/dev/null 2>&1 && stamped "$native_stamp" "$sources"; then return 0; fi
    say "compiling the native kernels"
    rm -f "$native_stamp" src/khot/_native*.so
    if KHOT_REQUIRE_NATIVE=1 "$python" setup.py build_ext --inplace --force >"$native_log" 2>&1 &&
        kernels_load >>"$native_log" 2>&1; then
        write_stamp "$native_stamp" "$sources"
        return 0
    fi
    rm -f src/khot/_native*.so
    compiler=$(first_that_fails)
    headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    if [ -n "$compiler" ]; then
        without_kernels "no C++ compiler ($compiler does not work)" "apt-get install g++"
    elif [ ! -f "$headers/Python.h" ]; then
        without_kernels "no Python headers ($headers/Python.h)" "apt-get install python3-dev"
    else
        show_errors "$native_log"
        die "csrc does not compile or load: correct it, or go on without it: KHOT_NO_NATIVE=1; the log: $native_log"
    fi
}

take_turn
remember_options
# The folder is part of the key: .venv knows khot by its absolute path. cksum is in every POSIX system.
key=$(
    cat pyproject.toml benchmarks/pyproject.toml constraints.txt setup.py tools/set_up_venv.sh | cksum
    printf '%s\n' "in $(pwd -P)" "TORCH=$TORCH" "PIP_ARGS=$PIP_ARGS"
)
if [ ! -x "$python" ] || ! stamped "$stamp" "$key" ||
    { [ -n "${PYTHON:-}" ] && [ "$(describe "$python")" != "$(describe "$PYTHON")" ]; }; then
    make_environment
    rm -f "$stamp" "$docs_stamp"
    if [ -f "$options" ]; then
        say "bringing torch and tools up to date"
    else
        say "installing torch and tools (once; about 2 minutes)"
    fi
    forget_half_installed
    install dev
    "$python" -c 'import numpy, pytest, torch' >>"$log" 2>&1 || {
        show_tail "$log"
        die "what pip installed does not import: make distclean, then run make again; the log: $log"
    }
    printf '%s\n' "$TORCH" "$PIP_ARGS" >"$options"
    write_stamp "$stamp" "$key"
fi
compile_kernels
if [ "${1:-}" = docs ] && ! stamped "$docs_stamp" "$key"; then
    say "installing the tools of the documentation (once)"
    rm -f "$docs_stamp"
    install docs
    write_stamp "$docs_stamp" "$key"
fi
