#!/bin/sh
# Installs what tools/build_dist.sh built into an empty environment, as a user would, and tests it there.
#
#   tools/test_dist.sh
#
# 1. the wheel, with its dependencies: the kernels must be in use;
# 2. the source archive, without a compiler: the portable path must work, and `khot doctor` must say so.
#
# Both are tested with what can break by packaging: the operators, the kernels and NumPy, in minutes. Designs, layers
# and applications are plain Python on top of these: `make test` tests them, and `make test-matrix` those of the core.
# Reads PYTHON and PIP_ARGS (see `make help`), PYTEST_ARGS.
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM
python=$folder/venv/bin/python

say() { printf 'dist: %s\n' "$*"; }
die() {
    printf 'dist: %s\n' "$*" >&2
    exit 1
}

# PIP_ARGS and PYTEST_ARGS are lists of words: splitting them is meant.
# shellcheck disable=SC2086
pip_install() {
    "$python" -m pip install --disable-pip-version-check ${PIP_ARGS:-} -c constraints.txt "$@" >"$folder/pip.log" 2>&1 || {
        tail -n 15 "$folder/pip.log" >&2
        die "pip failed: $*"
    }
}

# What `khot doctor` says on its line of the compiled library.
library() { (cd "$folder" && "$python" -m khot doctor) | sed -n 's/^native library *//p'; }

"${PYTHON:-python3}" -m venv "$folder/venv"
say 'installing the wheel into an empty environment'
# torch exactly, as pinned: a range would fetch another build.
pip_install "$(grep '^torch==' constraints.txt)" dist/*.whl
case $(library) in
    "$folder"/*) ;;
    *) die "the wheel's kernels are not in use: $(library)" ;;
esac
pip_install pytest pytest-xdist hypothesis scipy scikit-learn
# shellcheck disable=SC2086
KHOT_REQUIRE_NATIVE=1 tools/test_installed.sh "$python" quick -n logical ${PYTEST_ARGS:-}

say 'installing the source archive, without a compiler'
"$python" -m pip uninstall --quiet --yes khot
pip_install 'setuptools>=77'
# A subshell, because POSIX leaves open what `VAR=x function` does.
(
    export CC=false CXX=false
    pip_install --no-deps --no-build-isolation dist/*.tar.gz
)
case $(library) in
    'not in use, not built'*) ;;
    *) die "without a compiler, khot doctor says: $(library)" ;;
esac
# shellcheck disable=SC2086
tools/test_installed.sh "$python" portable -n logical ${PYTEST_ARGS:-}
say 'both passed'
