#!/bin/sh
# Runs tests on the khot that is installed for an interpreter, never on the source tree.
#
#   tools/test_installed.sh PYTHON quick [pytest arguments]      the operators, their kernels, and NumPy
#   tools/test_installed.sh PYTHON portable [pytest arguments]   thresholds, what operators share, and NumPy
#   tools/test_installed.sh PYTHON core [pytest arguments]       everything that needs torch and NumPy alone
set -eu
cd "$(dirname "$0")/.."
python=$1 which=$2
shift 2
unset PYTHONPATH || true
export OMP_NUM_THREADS=1

"$python" - "$PWD" <<'CHECK'
import sys

import khot

if khot.__file__.startswith(sys.argv[1] + "/src/"):
    sys.exit(f"test_installed.sh: {sys.executable} imports khot from the source tree: {khot.__file__}")
CHECK
tests='unit/interop unit/kernels unit/relaxations'
case $which in
    quick) ;;
    portable)
        tests='unit/interop unit/relaxations/threshold'
        for file in tests/unit/relaxations/test_*.py; do tests="$tests ${file#tests/}"; done
        set -- -k 'not compiled' "$@"
        ;;
    core)
        tests="$tests contract unit/designs unit/estimators unit/losses unit/metrics unit/nn unit/parallel"
        tests="$tests process/test_imports.py process/test_threads.py"
        tests="$tests unit/test_calibration.py unit/test_constraints.py unit/test_schedules.py"
        ;;
    *)
        echo "test_installed.sh: quick, portable or core, got $which" >&2
        exit 2
        ;;
esac
for folder in $tests; do set -- "$@" "tests/$folder"; done
exec "$python" -m pytest -q -rfE -p no:cacheprovider -m 'not full and not slow' "$@"
