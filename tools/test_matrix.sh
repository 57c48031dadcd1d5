#!/bin/sh
# Tests one wheel on every supported Python that is here, with the oldest and the newest torch and NumPy.
#
#   tools/test_matrix.sh               all rows
#   tools/test_matrix.sh 3.11 trixie   rows whose name contains one of the words
#   MATRIX_CUDA=1                      also where torch brings its CUDA libraries along (gigabytes)
#   MATRIX_TORCH=2.15.0                this torch instead of the one in constraints.txt
#   MATRIX_MIRROR=URL                  where debootstrap finds Debian, by default where apt does
#
# Uses the wheel in dist/, and builds it if there is none. Each row has a new environment in .venv-matrix/NAME, which is
# removed if the tests pass, and a log beside it. What cannot be installed is untested, with the reason; then at least
# that Python compiles the files of the wheel, and computes with its library alone (tools/library_alone.py). The table
# is printed, and written to .venv-matrix/table. Ends with an error if tests failed; untested is not an error.
#
# The rows whose names end with t are free-threaded Pythons (tools/build_free_threaded_python.sh builds one). The wheel is
# not for these, as they have no stable ABI: the source archive is compiled there.
#
# The rows 'debian-…' need root and debootstrap: they test on the Python, torch and NumPy of a Debian release, the
# stable one and the one in the making.
# Reads PIP_ARGS and PYTEST_ARGS (see `make help`).
set -eu
cd "$(dirname "$0")/.."
newest=${MATRIX_TORCH:-$(sed -n 's/^torch==//p' constraints.txt)}
oldest=$(sed -n 's/.*"torch>=\([0-9.]*\)".*/\1.0/p' pyproject.toml)
folder=.venv-matrix
words=$*
failed=''

# usage: wanted NAME: whether the words name this row.
wanted() {
    [ -n "$words" ] || return 0
    for word in $words; do
        case $1 in *"$word"*) return 0 ;; esac
    done
    return 1
}

# usage: row NAME RESULT
row() {
    printf '%-32s %s\n' "$1" "$2" | tee -a "$folder/table"
    case $2 in failed*) failed="$failed, $1" ;; esac
}

# The lines of pytest that count: what failed, or the closing one.
closing_line() { grep -E '(passed|failed|error).* in [0-9.]+s' "$1" | tail -n 1 | tr -d '='; }

describe='import platform, numpy, torch
print(f"Python {platform.python_version()}, torch {torch.__version__}, NumPy {numpy.__version__}")'

# usage: versions PYTHON
versions() { "$1" -c "$describe"; }

# usage: run_tests NAME PYTHON: with khot installed. A free-threaded Python stays so, whatever other modules ask for.
run_tests() {
    log=$folder/$1.log free=''
    case $1 in *t) free=PYTHON_GIL=0 ;; esac
    # shellcheck disable=SC2086
    if env $free tools/test_installed.sh "$2" core -n logical ${PYTEST_ARGS:-} >>"$log" 2>&1; then
        row "$1" "passed: $(versions "$2"): $(closing_line "$log")"
        rm -rf "${folder:?}/$1"
    else
        row "$1" "failed: $(versions "$2"): $(closing_line "$log"); see $log"
    fi
}

# What pip would bring for these requirements, a name each line.
# shellcheck disable=SC2086
would_install() {
    "$@" --dry-run --ignore-installed --report - ${PIP_ARGS:-} 2>>"$log" | sed -n 's/^ *"name": "\(.*\)",\{0,1\}$/\1/p'
}

# usage: find_python VERSION: one that runs, in PATH or among those of pyenv, whose shims may not run.
find_python() {
    for found in "$(command -v "python$1" || :)" "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$1".*/bin/python; do
        if [ -x "$found" ] && "$found" -c '' >/dev/null 2>&1; then
            echo "$found"
            return
        fi
    done
}

# usage: without_torch INTERPRETER: what can be said of the wheel alone.
without_torch() {
    rm -rf "$folder/unpacked"
    if "$1" -m zipfile -e dist/*.whl "$folder/unpacked" && "$1" -m compileall -q "$folder/unpacked" &&
        "$1" tools/library_alone.py "$folder/unpacked"; then
        echo '; without torch: the files compile, the library loads and computes'
    else
        echo '; without torch: FAILED'
    fi 2>>"$log" | tail -n 1
    rm -rf "$folder/unpacked"
}

# usage: untested NAME INTERPRETER REASON
untested() {
    case $1 in
        *t) alone='' ;; # the wheel is not for it
        *) alone=$(without_torch "$2") ;;
    esac
    rm -rf "${folder:?}/$1"
    case $alone in
        *FAILED) row "$1" "failed: $3$alone, see $log" ;;
        *) row "$1" "untested: $3$alone" ;;
    esac
}

# usage: test_row NAME VERSION TORCH NUMPY
test_row() {
    name=$1 version=$2 torch=torch==$3 numpy=numpy$4 log=$folder/$1.log
    wanted "$name" || return 0
    interpreter=$(find_python "$version")
    if [ -z "$interpreter" ]; then
        row "$name" "untested: there is no python$version"
        return 0
    fi
    : >"$log"
    rm -rf "${folder:?}/$name"
    if ! "$interpreter" -m venv "$folder/$name" >>"$log" 2>&1; then
        row "$name" "untested: python$version cannot make environments"
        return 0
    fi
    python=$folder/$name/bin/python
    set -- "$python" -m pip install --quiet --disable-pip-version-check
    would_install "$@" "$torch" "$numpy" >"$folder/packages"
    if [ ! -s "$folder/packages" ]; then
        untested "$name" "$interpreter" "$torch with $numpy is not available"
        return 0
    fi
    if [ -z "${MATRIX_CUDA:-}" ] && grep -qE '^(nvidia|cuda)-' "$folder/packages"; then
        untested "$name" "$interpreter" "$torch is available with CUDA libraries only (MATRIX_CUDA=1 installs them)"
        return 0
    fi
    case $version in
        *t) package=$(echo dist/*.tar.gz) ;;
        *) package=$(echo dist/*.whl) ;;
    esac
    # What the tests need comes as wheels, so that nothing but khot is compiled.
    # shellcheck disable=SC2086
    if ! { "$@" ${PIP_ARGS:-} --only-binary :all: "$torch" "$numpy" pytest pytest-xdist hypothesis scipy scikit-learn &&
        KHOT_REQUIRE_NATIVE=1 "$@" ${PIP_ARGS:-} --no-deps "$package"; } >>"$log" 2>&1; then
        untested "$name" "$interpreter" "pip failed, see $log"
        return 0
    fi
    run_tests "$name" "$python"
}

# usage: debian_row RELEASE
debian_row() {
    name=debian-$1 log=$folder/debian-$1.log root=$PWD/$folder/debian-$1
    wanted "$name" || return 0
    if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null 2>&1; then
        row "$name" 'untested: needs root, and debootstrap (apt-get install debootstrap)'
        return 0
    fi
    rm -rf "$root"
    packages=python3-torch,python3-scipy,python3-sklearn,python3-pytest,python3-pytest-xdist,python3-hypothesis
    packages=$packages,python3-pip,libgomp1,g++,python3-dev,libtorch-dev # the last three for Inductor
    # shellcheck disable=SC2016  # it is apt's own syntax
    mirror=${MATRIX_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | head -n 1)}
    # The rules of sid serve every release that is newer than this debootstrap.
    if ! debootstrap --variant=minbase --include="$packages" "$1" "$root" "$mirror" sid >"$log" 2>&1; then
        row "$name" "untested: debootstrap failed, see $log"
        return 0
    fi
    mkdir "$root/khot" && cp -R conftest.py pyproject.toml constraints.txt csrc dist docs tests tools "$root/khot"
    if ! chroot "$root" sh -c 'python3 -m pip install --no-deps --no-index --break-system-packages /khot/dist/*.whl' \
        >>"$log" 2>&1; then
        row "$name" "failed: the wheel does not install, see $log"
        return 0
    fi
    # Everything a test may write is inside; /proc is needed by torch and pytest-xdist.
    mount -t proc proc "$root/proc" 2>>"$log" || :
    facts=$(chroot "$root" python3 -c "$describe" 2>>"$log" || :)
    # shellcheck disable=SC2086
    chroot "$root" env HOME=/root sh /khot/tools/test_installed.sh python3 core -n logical ${PYTEST_ARGS:-} >>"$log" 2>&1 &&
        result=passed || result=failed
    umount "$root/proc" 2>/dev/null || :
    row "$name" "$result: $facts: $(closing_line "$log")"
    [ "$result" = failed ] || rm -rf "$root"
}

mkdir -p "$folder"
: >"$folder/table"
ls dist/*.whl >/dev/null 2>&1 || tools/build_dist.sh
for version in 3.10 3.11 3.12 3.13 3.14 3.13t 3.14t; do
    test_row "python$version" "$version" "$newest" ''
done
test_row python3.11-numpy1.26 3.11 "$newest" '==1.26.*'
test_row python3.11-torch-oldest 3.11 "$oldest" '<2.3'
debian_row trixie
debian_row forky
rm -f "$folder/packages"
[ -z "$failed" ] || {
    echo "test-matrix: failed${failed#,}" >&2
    exit 1
}
