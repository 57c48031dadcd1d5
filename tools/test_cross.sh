#!/bin/sh
# Compiles the kernels with a cross-compiler and runs them in an emulator, on the cases of tests/cross/vectors.py.
#
#   tools/test_cross.sh             for aarch64: needs aarch64-linux-gnu-g++ and qemu-aarch64(-static)
#   tools/test_cross.sh native      for this machine, without an emulator
#
# Python itself is not emulated: the Python module (csrc/module.cpp) is left out.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON_FOR_VECTORS:-.venv/bin/python}

die() {
    printf 'test-cross: %s\n' "$*" >&2
    exit 1
}

first_of() {
    for name in "$@"; do
        if command -v "$name" 2>/dev/null; then return; fi
    done
}

case ${1:-aarch64} in
    aarch64)
        compiler=$(first_of aarch64-linux-gnu-g++)
        emulator=$(first_of qemu-aarch64-static qemu-aarch64)
        [ -n "$compiler" ] || die 'no cross-compiler: apt-get install g++-aarch64-linux-gnu'
        [ -n "$emulator" ] || die 'no emulator: apt-get install qemu-user-static'
        static=-static
        ;;
    native)
        compiler=${CXX:-g++} emulator='' static=''
        ;;
    *) die "aarch64 or native, got $1" ;;
esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM
# The flags of the library itself.
flags=$(sed -n 's/^FLAGS = \[\(.*\)\]$/\1/p' setup.py | tr -d '",')
[ -n "$flags" ] || die 'found no FLAGS in setup.py'

find csrc -name '*.cpp' ! -name module.cpp | sort >"$folder/sources"
echo tests/cross/kernels.cpp >>"$folder/sources"
echo "test-cross: compiling $(wc -l <"$folder/sources") files with $compiler"
# shellcheck disable=SC2086
xargs -P "$(getconf _NPROCESSORS_ONLN)" -I FILE sh -c \
    "$compiler $flags -fopenmp -Icsrc -c FILE -o $folder/\$(basename FILE .cpp).o" <"$folder/sources"
# shellcheck disable=SC2086
$compiler $static -fopenmp "$folder"/*.o -o "$folder/kernels"
KHOT_NO_NATIVE=1 "$python" tests/cross/vectors.py >"$folder/vectors"
# shellcheck disable=SC2086
$emulator "$folder/kernels" <"$folder/vectors"
