"""An HTML report on a trained autoencoder: learning curves, latent densities, and examples of latents.

It is one HTML file with its pictures inside; it needs no other file and no network.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from khot.apps.sae.activations import ActivationStore
from khot.apps.sae.autoencoder import SparseAutoencoder
from khot.apps.sae.examples import LatentExamples, latent_density, top_examples
from khot.files.whole import write_text

__all__ = ["write_report"]

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0
1rem;color:#1b1b1f;background:#fff} figure{display:inline-block;margin:0 1rem 1rem
0}figcaption{font-size:13px;color:#555} table{border-collapse:collapse}td,th{padding:.15rem .8rem .15rem
0;text-align:left} section.latent{border-top:1px solid #ddd;padding:.4rem 0}section.latent h3{margin:.2rem
0;font-size:15px} p.example{margin:.1rem 0;font:13px/1.6 ui-monospace,monospace;white-space:pre-wrap}
mark{background:#ffd54d;border-radius:3px;padding:0 1px}small{color:#555}
@media(prefers-color-scheme:dark){body{background:#16161a;color:#e6e6ea}mark{background:#8a6d00;color:#fff}
figcaption,small{color:#aaa}section.latent{border-color:#333}}
"""


def write_report(
    path: str | Path,
    autoencoder: SparseAutoencoder,
    store: ActivationStore,
    *,
    decode: Callable[[Sequence[int]], str] | None = None,
    history: Mapping[str, Any] | None = None,
    numbers: Mapping[str, float] | None = None,
    latents: Sequence[int] | None = None,
    title: str = "Sparse autoencoder",
    rows: int = 50_000,
    seed: int = 0,
) -> None:
    """Write an HTML page about an autoencoder: its metrics, its training, examples of its latents.

    Cost: at most two encodings of the rows.

    Args:
        path: the path of the HTML file.
        autoencoder: the autoencoder, in evaluation mode.
        store: activations, with their tokens if examples should be shown.
        decode: a function from tokens to text; without it there are no examples.
        history: the history returned by :func:`khot.apps.sae.train`.
        numbers: metrics to show in a table.
        latents: the latents to show; by default 20 random ones among those that fire.
        title: the heading.
        rows: use this many activations, from the first.
        seed: the seed for choosing latents.

    Returns:
        None; the file is written.

    Example:
        >>> import tempfile
        >>> from khot.apps.sae import collect_activations
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8))
        >>> folder = Path(tempfile.mkdtemp())
        >>> store = collect_activations(network, "0", torch.randn(5, 20, 4), folder / "activations")
        >>> write_report(folder / "index.html", SparseAutoencoder(8, 16, 2).eval(), store)
        >>> "<h1>Sparse autoencoder</h1>" in (folder / "index.html").read_text("utf-8")
        True
    """
    density = latent_density(autoencoder, store, rows)
    chosen = list(latents) if latents is not None else _some(density, 20, seed)
    parts = [f"<h1>{html.escape(title)}</h1>", f"<p>{html.escape(repr(autoencoder))}</p>"]
    if numbers:
        lines = "".join(f"<tr><th>{html.escape(n)}</th><td>{v:.4g}</td></tr>" for n, v in numbers.items())
        parts.append(f"<table>{lines}</table>")
    if history is not None and history["step"]:
        curves = {"fvu": "FVU of a batch", "l0": "active latents (L0)", "dead": "share of dead latents"}
        parts += [_figure(history["step"], history[name], label, "step") for name, label in curves.items()]
    parts.append(_density_figure(density))
    if decode is not None:
        parts.append(f"<h2>{len(chosen)} latents, and the tokens on which they are most active</h2>")
        found = top_examples(autoencoder, store, chosen, rows=rows)
        parts += [_latent(examples, density, store, decode) for examples in found]
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style><body>{''.join(parts)}</body></html>\n"
    )
    write_text(page, Path(path))


def _some(density: Tensor, count: int, seed: int) -> list[int]:
    """Latents that fire, but not on every tenth token, at random; in the order of their numbers."""
    alive = ((density > 0) & (density < 0.1)).nonzero().flatten()
    order = torch.randperm(len(alive), generator=torch.Generator().manual_seed(seed))
    return sorted(int(latent) for latent in alive[order[:count]])


def _latent(
    examples: LatentExamples,
    density: Tensor,
    store: ActivationStore,
    decode: Callable[[Sequence[int]], str],
) -> str:
    lines: list[str] = []
    for row, act in zip(examples.rows, examples.acts, strict=True):
        tokens, place = store.context(row)
        before, token, after = tokens[:place], tokens[place : place + 1], tokens[place + 1 :]
        texts = [
            html.escape(decode(part).replace("\n", "⏎")) if part else "" for part in (before, token, after)
        ]
        lines.append(
            f'<p class="example">{texts[0]}<mark>{texts[1]}</mark>{texts[2]} <small>{act:.2f}</small></p>'
        )
    share = f"active on {density[examples.latent].item():.2%} of the tokens"
    heading = f"<h3>latent {examples.latent}</h3><small>{share}</small>"
    return f'<section class="latent">{heading}{"".join(lines)}</section>'


def _density_figure(density: Tensor) -> str:
    """How many latents fire how often, by powers of ten; those that never fire are named beside."""
    logs = density[density > 0].log10()
    edges = [-5 + 0.2 * place for place in range(25)]
    counts = (
        [float(count) for count in torch.histc(logs.clamp(-5, 0), 25, -5, 0)] if len(logs) else [0.0] * 25
    )
    never = int((density == 0).sum())
    label = f"latents by log₁₀ of their density; {never} of {len(density)} are never active"
    return _figure(edges, counts, label, "log₁₀ density", bars=True)


def _figure(xs: Sequence[float], ys: Sequence[float], label: str, axis: str, *, bars: bool = False) -> str:
    """A small picture as SVG; what is not finite is left out."""
    points = [
        (float(x), float(y)) for x, y in zip(xs, ys, strict=True) if math.isfinite(x) and math.isfinite(y)
    ]
    if not points:
        return ""
    left, width, height = 46, 330, 150
    low, high = min(0.0, *(y for _, y in points)), max(y for _, y in points) or 1.0
    first, last = min(x for x, _ in points), max(x for x, _ in points)

    def place(x: float, y: float) -> tuple[float, float]:
        return left + (x - first) / ((last - first) or 1) * width, 10 + (high - y) / (
            (high - low) or 1
        ) * height

    if bars:
        wide = width / len(points)
        drawn = "".join(
            f'<rect x="{place(x, y)[0]:.1f}" y="{place(x, y)[1]:.1f}" width="{wide:.1f}" '
            f'height="{10 + height - place(x, y)[1]:.1f}" fill="#3b6fd4"/>'
            for x, y in points
        )
    else:
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in (place(x, y) for x, y in points))
        drawn = f'<polyline points="{line}" fill="none" stroke="#3b6fd4" stroke-width="1.5"/>'
    ticks = "".join(
        f'<text x="{x}" y="{y}" font-size="11" text-anchor="{anchor}" fill="currentColor">{text}</text>'
        for x, y, anchor, text in (
            (left - 4, 18, "end", f"{high:.3g}"),
            (left - 4, 10 + height, "end", f"{low:.3g}"),
            (left, 26 + height, "start", f"{first:.4g}"),
            (left + width, 26 + height, "end", f"{last:.4g} ({axis})"),
        )
    )
    frame = (
        f'<path d="M{left} 10V{10 + height}H{left + width}" fill="none" stroke="currentColor" opacity=".5"/>'
    )
    return (
        f'<figure><svg width="{left + width + 60}" height="{height + 34}" role="img" '
        f'aria-label="{html.escape(label)}">'
        f"{frame}{drawn}{ticks}</svg><figcaption>{html.escape(label)}</figcaption></figure>"
    )
