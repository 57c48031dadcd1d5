#!/bin/sh
# Runs tests on the khot that is installed for an interpreter, never on the source tree.
#
#   tools/test_installed.sh PYTHON quick [pytest arguments]   the operators, their kernels, and NumPy
#   tools/test_installed.sh PYTHON core [pytest arguments]    everything that needs torch and NumPy alone
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
if [ "$which" = core ]; then
    tests="$tests contract unit/designs unit/estimators unit/losses unit/metrics unit/nn unit/parallel"
    tests="$tests unit/test_calibration.py unit/test_constraints.py unit/test_schedules.py"
fi
for folder in $tests; do set -- "$@" "tests/$folder"; done
exec "$python" -m pytest -q -p no:cacheprovider -m 'not full and not slow' "$@"
