#!/bin/sh
# Build .venv-equations: khot and its laboratory (editable) beside what `khot reproduce sindy` and `khot reproduce
# dictionary` compare with: pysindy with MIOSR (Gurobi's restricted licence), dysts, ksvd, spams (GPL) and the
# pictures of scikit-image.
#
#   PYTHON=python3.11 PIP_ARGS="--no-cache-dir" tools/set_up_equations.sh
#
# Each is installed on its own: what fails is printed at the end, and its rows are left out of the tables, which
# say so. A second call with nothing changed returns at once; FORCE=1 installs again.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
venv=$root/.venv-equations
stamp=$venv/equations.stamp
constraints=$root/constraints.txt
python=${PYTHON:-python3}
pip_args=${PIP_ARGS:-}

wanted=$({
    cat "$0" "$constraints" "$root/pyproject.toml" "$root/benchmarks/pyproject.toml"
    printf '%s\n' "$("$python" -c 'import sys; print(sys.version)')" "$pip_args"
} | cksum)
if [ -z "${FORCE:-}" ] && [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" = "$wanted" ]; then
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

# Exactly this torch, and nothing that asks for a range: a range would fetch the CUDA build.
torch=$(grep '^torch==' "$constraints")
pip_install --upgrade setuptools wheel
pip_install "$torch"
(cd "$root" && pip_install --no-build-isolation --editable '.[apps,cli,sindy]' --editable ./benchmarks pytest hypothesis)

failed=
for requirement in gurobipy==13.0.3 dysts==0.96 ksvd==0.0.3 spams-bin==2.6.14 scikit-image==0.26.0; do
    printf 'installing %s\n' "$requirement"
    pip_install "$requirement" || failed="$failed $requirement"
done

case "torch==$("$venv/bin/python" -c 'import torch; print(torch.__version__)')" in
    "$torch"*) ;;
    *)
        printf 'something replaced %s: remove %s and find what.\n' "$torch" "$venv" >&2
        exit 1
        ;;
esac
summary="environment for equations and dictionaries: $venv"
[ -z "$failed" ] || summary="$summary
  not installed:$failed (FORCE=1 tries again)"
printf '%s\n%s\n' "$wanted" "$summary" > "$stamp"
printf '%s\n' "$summary"
