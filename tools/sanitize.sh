#!/bin/sh
# Runs the tests of the compiled kernels under compiler sanitizers.
#
#   tools/sanitize.sh [pytest arguments]
#   KHOT_SANITIZE=undefined tools/sanitize.sh    another -fsanitize value (default address,undefined);
#                                                not thread: see tools/fuzz.sh threads
#
# The library is built into a temporary directory, beside a copy of the Python files, so the one in use
# stays as it is. An interpreter that was not built with a sanitizer must have its runtime preloaded.
set -eu
cd "$(dirname "$0")/.."

python=$PWD/.venv/bin/python
export KHOT_SANITIZE="${KHOT_SANITIZE:-address,undefined}"
export KHOT_REQUIRE_NATIVE=1
unset KHOT_NO_NATIVE KHOT_ISA || true

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM

mkdir "$folder/lib"
cp -R src/khot "$folder/lib/khot"
rm -f "$folder"/lib/khot/_native*.so
"$python" setup.py --quiet build_ext --build-lib "$folder/lib" --build-temp "$folder/objects"

compiler=${CXX:-g++}
preload=
for name in address:libasan.so undefined:libubsan.so; do
    case ",$KHOT_SANITIZE," in
        *",${name%%:*},"*) preload="$preload $("$compiler" -print-file-name="${name#*:}")" ;;
    esac
done

# Python and torch keep memory until the process ends: leaks are not asked for. Everything else ends the
# process with an error. Without pymalloc every Python object is an allocation the sanitizer sees.
export LD_PRELOAD="$preload"
export ASAN_OPTIONS="detect_leaks=0:abort_on_error=1:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:${UBSAN_OPTIONS:-}"
export PYTHONMALLOC=malloc
export PYTHONPATH="$folder/lib:$PWD/tools"
export PYTHONDONTWRITEBYTECODE=1

"$python" - "$folder" <<'CHECK'
import sys
from khot.kernels import loader

path = loader.native() and loader.status().path
assert path.startswith(sys.argv[1]), f"the tests would use {path}"
print(f"sanitize: {path}, {loader.status().isa}")
CHECK
# A whole run must call every kernel. --capture=sys leaves the file descriptor alone, on which a sanitizer writes its
# report before it aborts.
whole=
if [ $# -eq 0 ]; then whole='-p every_kernel_called'; fi
# shellcheck disable=SC2086
"$python" -m pytest -p no:cacheprovider $whole --capture=sys -q tests/unit/kernels tests/unit/designs/test_design_kernels.py \
    tests/unit/relaxations/threshold/test_sigmoid_half.py "$@"
