#!/bin/sh
# Build .venv-sae: khot (editable) beside the tools whose folders khot.apps.sae reads and writes.
#
#   PYTHON=python3.11 PIP_ARGS="--no-cache-dir" tools/set_up_sae.sh
#
# tests/extra/sae runs there. A second call with nothing changed returns at once; FORCE=1 installs again.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
venv=$root/.venv-sae
stamp=$venv/sae.stamp
constraints=$root/constraints.txt
python=${PYTHON:-python3}
pip_args=${PIP_ARGS:-}

wanted=$({
    cat "$root/tools/set_up_sae.sh" "$constraints" "$root/pyproject.toml"
    "$python" -c 'import sys; print(sys.version)'
    printf '%s\n' "$pip_args"
} | cksum)
if [ -z "${FORCE:-}" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
rm -f "$stamp"

# PIP_ARGS is a list of words: splitting it is meant.
# shellcheck disable=SC2086
pip_install() {
    "$venv/bin/python" -m pip install --quiet $pip_args -c "$constraints" "$@"
}

torch_version() {
    "$venv/bin/python" -c 'import torch; print(torch.__version__)'
}

# Exactly this torch, and nothing that asks for a range: a range would fetch the CUDA build.
pip_install --upgrade setuptools wheel
pip_install "$(grep '^torch==' "$constraints")" numpy safetensors transformers pytest hypothesis
before=$(torch_version)
# What they import for folders of weights, and no more: their own lists bring CUDA packages and plotting.
pip_install --no-deps sae-lens==6.54.12 eai-sparsify==1.3.3 dictionary-learning==0.1.0 transformer-lens==3.9.0
pip_install einops natsort simple-parsing accelerate datasets jaxtyping beartype better_abc fancy_einsum \
    python-dotenv tenacity rich sentencepiece pandas nltk pyyaml babe==0.0.7 schedulefree wandb \
    plotly plotly-express zstandard
(cd "$root" && pip_install --no-build-isolation --editable .)

[ "$before" = "$(torch_version)" ] || {
    printf 'torch %s was replaced by %s: remove %s and find which package did it.\n' \
        "$before" "$(torch_version)" "$venv" >&2
    exit 1
}
"$venv/bin/python" -c 'import sae_lens, sparsify' || {
    printf 'sae-lens or sparsify does not import in %s\n' "$venv" >&2
    exit 1
}
printf '%s\n' "$wanted" > "$stamp"
printf 'environment of the autoencoders: %s, torch %s\n' "$venv" "$(torch_version)"
