#!/bin/sh
# Runs the tests of the core (what needs torch and NumPy alone) on the khot that is installed for an interpreter,
# never on the source tree.
#
#   tools/test_installed.sh PYTHON [pytest arguments]
set -eu
cd "$(dirname "$0")/.."
python=$1
shift
unset PYTHONPATH || true
export OMP_NUM_THREADS=1

"$python" - "$PWD" <<'CHECK'
import sys

import khot

if khot.__file__.startswith(sys.argv[1] + "/src/"):
    sys.exit(f"test_installed.sh: {sys.executable} imports khot from the source tree: {khot.__file__}")
CHECK
for folder in contract unit/designs unit/estimators unit/interop unit/kernels unit/losses unit/metrics \
    unit/nn unit/parallel unit/relaxations unit/test_calibration.py unit/test_constraints.py unit/test_schedules.py; do
    set -- "$@" "tests/$folder"
done
exec "$python" -m pytest -q -p no:cacheprovider -m 'not full and not slow' "$@"
