"""The command `khot sae`: train sparse autoencoders, and convert them between the formats of tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from khot.cli._failures import FAILED, REFUSED, failures_end_with
from khot.cli.progress import progress

if TYPE_CHECKING:
    from khot.apps.sae import ActivationStore

__all__ = ["app", "convert_command", "main", "train_command"]

app = typer.Typer(add_completion=False, help="Train and convert sparse autoencoders.", no_args_is_help=True)

_ACTIVATIONS = "activations"


def main(arguments: Sequence[str]) -> None:
    """The command."""
    app(args=list(arguments), prog_name="khot sae")


@app.command("train")
def train_command(
    model: Annotated[
        str | None, typer.Option(help="A transformers model: a folder, a GGUF file, or a name on the hub.")
    ] = None,
    text: Annotated[Path | None, typer.Option(help="A text file to run the model on.")] = None,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="A function that returns (nn.Module, batches); instead of --model and --text.",
        ),
    ] = None,
    hook_point: Annotated[
        str | None, typer.Option(help="The module whose output to encode, as in model.named_modules().")
    ] = None,
    activations: Annotated[
        Path | None, typer.Option(help="A folder of activations collected before.")
    ] = None,
    output: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("runs/sae"),
    tokens: Annotated[int, typer.Option(min=1, help="Use at most this many tokens.")] = 1_000_000,
    length: Annotated[int, typer.Option(min=2, help="Tokens per sequence.")] = 128,
    skip_positions: Annotated[int, typer.Option(min=0, help="Skip this many first tokens per sequence.")] = 1,
    largest_norm: Annotated[
        float,
        typer.Option(min=0, help="Skip activations above this many times the median norm; 0: keep all."),
    ] = 2.0,
    num_latents: Annotated[int, typer.Option(help="Number of latents.")] = 4096,
    k: Annotated[int, typer.Option(help="Active latents per token.")] = 32,
    activation: Annotated[str, typer.Option(help="topk, batch_topk or sigmoid_topk.")] = "batch_topk",
    prefixes: Annotated[str, typer.Option(help="Prefixes of a Matryoshka autoencoder: 256,1024,…")] = "",
    k_start: Annotated[float, typer.Option(help="Start with this many times k active latents.")] = 1.0,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 2000,
    batch_size: Annotated[int, typer.Option(help="Tokens per step.")] = 1024,
    learning_rate: Annotated[float, typer.Option(help="Peak learning rate.")] = 2e-3,
    auxk: Annotated[float, typer.Option(help="Weight of AuxK; 0 for none.")] = 1 / 32,
    dead_after: Annotated[
        int, typer.Option(help="A latent is dead if inactive for this many tokens.")
    ] = 100_000,
    seed: Annotated[int, typer.Option(help="Seed of weights and token order.")] = 0,
    format: Annotated[str, typer.Option(help="Format to write: saelens or sparsify.")] = "saelens",
    threads: Annotated[int | None, typer.Option(min=1, help="Number of PyTorch threads.")] = None,
) -> None:
    """Train a sparse autoencoder on the activations at a hook point; a stopped run resumes.

    Writes the activations, the state, the autoencoder in a format that other tools open, and a report,
    index.html.
    """
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    with failures_end_with(FAILED):
        from khot.apps.sae import TrainSettings, core_metrics, train, write_report
        from khot.files.whole import check_writable

        with failures_end_with(REFUSED):
            _check_format(format)
            settings = TrainSettings.from_dict(
                {
                    "num_latents": num_latents,
                    "k": k,
                    "activation": activation,
                    "prefixes": _numbers("--prefixes", prefixes),
                    "k_start": k_start,
                    "steps": steps,
                    "batch_size": batch_size,
                    "learning_rate": learning_rate,
                    "auxk": auxk,
                    "dead_after": dead_after,
                    "seed": seed,
                }
            )
            if format == "sparsify" and activation == "batch_topk":
                raise ValueError("sparsify has no batch_topk: --activation topk, or --format saelens")
            _check_source(activations, model, text, source, hook_point)
            check_writable("train", "output", output)
        with progress("khot sae train") as report:
            store, decode = _store(
                activations,
                model,
                text,
                source,
                hook_point,
                output,
                tokens,
                length,
                skip_positions,
                largest_norm,
                report,
            )
            autoencoder, history = train(store, settings, output, report=report)
        held = [
            store.read(range(start, min(start + 4096, len(store))))
            for start in range(0, min(20_000, len(store)), 4096)
        ]
        numbers = core_metrics(autoencoder, held)
        about = {"hook_name": store.about["hook_point"]} if format == "saelens" else None
        autoencoder.save(output, format, about=about)  # pyright: ignore[reportArgumentType]
        write_report(
            output / "index.html", autoencoder, store, decode=decode, history=history, numbers=numbers
        )
    typer.echo(
        f"explained variance {numbers['explained_variance']:.3f}, L0 {numbers['l0']:.1f}, "
        f"{numbers['frac_alive']:.1%} of the latents alive, {history['seconds']:.0f} s; written to {output}"
    )


@app.command("convert")
def convert_command(
    source: Annotated[
        Path, typer.Argument(help="A folder of SAELens, sparsify or dictionary_learning, or params.npz.")
    ],
    target: Annotated[Path, typer.Argument(help="The folder to write to.")],
    format: Annotated[str, typer.Option(help="Format to write: saelens or sparsify.")] = "saelens",
) -> None:
    """Convert an autoencoder from the format of one tool to that of another."""
    with failures_end_with(FAILED):
        from khot.apps.sae import SparseAutoencoder

        with failures_end_with(REFUSED):
            _check_format(format)
            if source.resolve() == target.resolve():
                raise ValueError(f"target must be another folder than source, got {target}")
        autoencoder = SparseAutoencoder.load(source)
        autoencoder.save(target, format)  # pyright: ignore[reportArgumentType]
    typer.echo(f"{autoencoder}\nwritten to {target}")


def _check_format(format: str) -> None:
    if format not in ("saelens", "sparsify"):
        raise ValueError(f"--format must be saelens or sparsify, got {format!r}")


def _check_source(
    activations: Path | None, model: str | None, text: Path | None, source: str | None, hook_point: str | None
) -> None:
    """Activations come from exactly one place, and it is told which."""
    ways = [activations is not None, model is not None, source is not None]
    if sum(ways) != 1 or (model is None) != (text is None):
        raise ValueError("give one of --activations, --model with --text, and --source")
    if activations is None and hook_point is None:
        raise ValueError("--hook-point must say which module's output is encoded")
    if source is not None and not source.partition(":")[2]:
        raise ValueError(f"--source must read MODULE:FUNCTION, got {source!r}")


def _store(
    activations: Path | None,
    model: str | None,
    text: Path | None,
    source: str | None,
    hook_point: str | None,
    output: Path,
    tokens: int,
    length: int,
    skip_positions: int,
    largest_norm: float,
    report: Callable[[str, float], None],
) -> tuple[ActivationStore, Callable[[Sequence[int]], str] | None]:
    """The activations, collected if necessary, and a function from their tokens to text."""
    from khot.apps.sae import ActivationStore, collect_activations

    if activations is not None:
        return ActivationStore(activations), None
    assert hook_point is not None
    batches: Iterable[Any]
    decode = None
    if source is not None:
        network, batches = _from_source(source)
        about = {"source": source}
    else:
        from khot.apps.sae.texts import load_language_model, token_batches

        assert model is not None
        assert text is not None
        network, tokenizer = load_language_model(model)
        batches = token_batches(tokenizer, text.read_text(encoding="utf-8", errors="replace"), tokens, length)
        about = {"model": model, "text": str(text), "tokens": tokens, "length": length}
        decode = tokenizer.decode
    store = collect_activations(
        network,
        hook_point,
        batches,
        output / _ACTIVATIONS,
        skip_positions=skip_positions,
        largest_norm=largest_norm or None,
        about=about,
        report=report,
    )
    return store, decode


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"{option} must be numbers with commas between, got {text!r}") from None


def _from_source(source: str) -> tuple[Any, Iterable[Any]]:
    import importlib
    import sys

    module, _, function = source.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # a module beside the user
    found = getattr(importlib.import_module(module), function, None)
    if found is None:
        raise ValueError(f"--source: {module} has no {function!r}")
    network, batches = found()
    return network, batches
