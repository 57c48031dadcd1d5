"""The command `khot train`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from khot.cli._failures import FAILED, REFUSED, failures_end_with
from khot.cli.progress import progress

__all__ = ["app", "main", "train_command"]

app = typer.Typer(add_completion=False)

_NETWORK = ("model", "k", "method")


def main(arguments: Sequence[str]) -> None:
    """The command."""
    app(args=list(arguments), prog_name="khot train")


@app.command()
def train_command(
    run: Annotated[
        str,
        typer.Argument(
            metavar="PRESET|CONFIG.JSON", help="A preset, or a JSON file with network, data and settings."
        ),
    ],
    model: Annotated[
        str | None, typer.Option(help="The network: topk_attention, topk_dynamic or vit.")
    ] = None,
    k: Annotated[int | None, typer.Option(help="How many tokens a head selects.")] = None,
    method: Annotated[str | None, typer.Option(help="The relaxation that selects.")] = None,
    data: Annotated[str | None, typer.Option(help="A data set by name, or a folder.")] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="The folder with the data sets.", show_default="$KHOT_DATA or ~/.cache/khot"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="The folder to write to.", show_default="runs/<preset>-<model>-<seed>")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training data.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step, over all processes.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay of matrices.")] = None,
    warmup_epochs: Annotated[float | None, typer.Option(help="Learning-rate warm-up, in epochs.")] = None,
    label_smoothing: Annotated[float | None, typer.Option(help="Label smoothing, in [0, 1).")] = None,
    mixup: Annotated[
        float | None, typer.Option(help="Parameter of the beta distribution; 0 for no mixup.")
    ] = None,
    clip: Annotated[float | None, typer.Option(help="Largest gradient norm; 0 for no limit.")] = None,
    augment: Annotated[bool | None, typer.Option(help="Random shifts, or random crops and flips.")] = None,
    bfloat16: Annotated[bool | None, typer.Option(help="Use autocast to bfloat16.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights, order and noise.")] = None,
    checkpoint_steps: Annotated[
        int | None, typer.Option(help="Save the state every this many steps; 0: after epochs only.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1, …", show_default="a GPU if there is one")
    ] = None,
    sharded: Annotated[
        bool,
        typer.Option("--sharded", help="Under torchrun, split the parameters over the processes (FSDP2)."),
    ] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Number of PyTorch threads.")] = None,
) -> None:
    """Train a vision network that selects k tokens, or a plain one; a stopped run resumes.

    Settings that are not given here come from the preset or the file.

    Under torchrun (`torchrun --nproc-per-node 2 -m khot train …`) the processes share every batch.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    with failures_end_with(FAILED):
        _train(run, given, output, data_dir, device, sharded)


def _train(
    run: str,
    given: dict[str, Any],
    output: Path | None,
    data_dir: Path | None,
    device: str | None,
    sharded: bool,
) -> None:
    import dataclasses

    from khot.files.whole import check_writable
    from khot.vision.config import preset_names
    from khot.vision.training import RunConfig, TrainSettings, run_preset, train
    from khot.vision.training.loop import load_data
    from khot.vision.training.processes import Processes

    leads = os.environ.get("RANK", "0") == "0"
    with failures_end_with(REFUSED):
        if run not in preset_names() and not Path(run).is_file():
            raise ValueError(f"{run!r} is no file and no preset; presets are {', '.join(preset_names())}")
        config = run_preset(run) if run in preset_names() else RunConfig.from_json(run)
        fields = [field.name for field in dataclasses.fields(TrainSettings)]
        config = config.changed(
            {name: given[name] for name in _NETWORK if name in given},
            {name: given[name] for name in fields if name in given},
        )
        if device is not None:
            Processes().device(device)
        if output is None:
            output = Path("runs") / f"{Path(run).stem}-{config.network.model}-{config.training.seed}"
        if leads:
            check_writable("train", "output", output)
    loaded = load_data(config, data_dir)
    if run in preset_names():  # a file says what it wants, and is held to it
        config = config.fitted(loaded[0])
    with progress("khot train") if leads else contextlib.nullcontext(_silent) as report:
        results = train(config, output, data=loaded, device=device, sharded=sharded, report=report)
    if leads:
        typer.echo(
            f"{results['parameters']} parameters, top-1 {100 * results['top1']:.2f} %, "
            f"top-5 {100 * results['top5']:.2f} %, {results['seconds']:.0f} s; written to {output}"
        )


def _silent(message: str, share: float) -> None:
    pass
