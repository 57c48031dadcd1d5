"""Quality of a sparse autoencoder: the core metrics of SAEBench, under their names.

==============================  ============================================================================
name                            meaning
==============================  ============================================================================
explained_variance              1 − fraction of variance unexplained, over all tokens
mse                             mean squared error per token
cossim                          cosine between a token and its reconstruction
l2_norm_in, l2_norm_out         norms; l2_ratio is the mean of their ratios
relative_reconstruction_bias    mean ‖x̂‖² / mean x·x̂: below 1 if the reconstruction shrinks
l0, l1                          active latents per token, and the sum of their activations
freq_over_1_percent, …_10_…     share of latents that are active on more than 1 % or 10 % of the tokens
frac_alive                      share of latents that are active on any of these tokens
average_max_decoder_cosine_sim  mean over latents of the largest cosine with another latent's direction
average_max_encoder_cosine_sim  the same for the encoder
ce_loss_score                   (ablated − with autoencoder) / (ablated − clean) in cross entropy
kl_div_score                    the same in the KL divergence from the clean model's predictions
==============================  ============================================================================

Reference: Karvonen et al. (2025), SAEBench, arXiv:2503.09532.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from khot.apps.sae._decoder_norms import row_norms, unit_rows
from khot.apps.sae.autoencoder import SparseAutoencoder

__all__ = ["core_metrics", "language_model_metrics"]

_AT_ONCE = 1024


@torch.no_grad()
def core_metrics(autoencoder: SparseAutoencoder, batches: Iterable[Tensor]) -> dict[str, float]:
    """Reconstruction, shrinkage and sparsity on activations.

    Cost: one encoding and decoding of all batches, and O(M² d) for the cosines between latents.

    Args:
        autoencoder: an autoencoder, not a transcoder; it is evaluated in its current mode.
        batches: activations (B, d_in).

    Returns:
        The metrics in the table of :mod:`khot.apps.sae.metrics`, except the last two.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> autoencoder = SparseAutoencoder(8, 16, 2).eval()
        >>> found = core_metrics(autoencoder, [torch.randn(50, 8)])
        >>> found["l0"] <= 2, 0 < found["frac_alive"] <= 1
        (True, True)

    Reference: Karvonen et al. (2025), SAEBench, arXiv:2503.09532.
    """
    if autoencoder.options.transcoder:
        raise ValueError("core_metrics: autoencoder must reconstruct its input, got a transcoder")
    names: tuple[str, ...] = ("error", "cossim", "in", "out", "ratio", "out²", "inner", "l0", "l1", "square")
    sums: dict[str, float] = dict.fromkeys(names, 0.0)
    total = torch.zeros(autoencoder.options.d_in, dtype=torch.float64)
    fired = torch.zeros(autoencoder.num_latents, dtype=torch.int64)
    count = 0
    for x in batches:
        result = autoencoder(x)
        x, out = x.double(), result.sae_out.double()
        norm_in, norm_out = row_norms(x), row_norms(out)
        inner = (x * out).sum(-1)
        parts: dict[str, Tensor] = {
            "error": (x - out).square().sum(),
            "cossim": (inner / (norm_in * norm_out).clamp_min(1e-30)).sum(),
            "in": norm_in.sum(),
            "out": norm_out.sum(),
            "ratio": (norm_out / norm_in.clamp_min(1e-30)).sum(),
            "out²": norm_out.square().sum(),
            "inner": inner.sum(),
            "l0": (result.latent_acts > 0).sum(),
            "l1": result.latent_acts.double().sum(),
            "square": x.square().sum(),
        }
        for name, value in parts.items():
            sums[name] += float(value)
        total += x.sum(0)
        fired += torch.bincount(
            result.latent_indices[result.latent_acts > 0], minlength=autoencoder.num_latents
        )
        count += len(x)
    if not count:
        raise ValueError("core_metrics: batches must not be empty")
    variance = sums["square"] - float(total.square().sum()) / count
    shares = fired / count
    return {
        "explained_variance": 1 - sums["error"] / max(variance, 1e-30),
        "mse": sums["error"] / count,
        "cossim": sums["cossim"] / count,
        "l2_norm_in": sums["in"] / count,
        "l2_norm_out": sums["out"] / count,
        "l2_ratio": sums["ratio"] / count,
        "relative_reconstruction_bias": sums["out²"] / sums["inner"] if sums["inner"] else 0.0,
        "l0": sums["l0"] / count,
        "l1": sums["l1"] / count,
        "freq_over_1_percent": (shares > 0.01).double().mean().item(),
        "freq_over_10_percent": (shares > 0.1).double().mean().item(),
        "frac_alive": (fired > 0).double().mean().item(),
        "average_max_decoder_cosine_sim": _nearest(autoencoder.W_dec),
        "average_max_encoder_cosine_sim": _nearest(autoencoder.W_enc),
    }


def _nearest(rows: Tensor) -> float:
    """The mean over rows of the largest cosine with another row, some rows at a time."""
    units = unit_rows(rows.float())
    if len(units) < 2:
        return 0.0
    sums = 0.0
    for start in range(0, len(units), _AT_ONCE):
        cosines = units[start : start + _AT_ONCE] @ units.T
        cosines[torch.arange(len(cosines)), start + torch.arange(len(cosines))] = -torch.inf
        sums += cosines.amax(-1).sum().item()
    return sums / len(units)


@torch.no_grad()
def language_model_metrics(
    model: nn.Module,
    hook_point: str,
    batches: Iterable[Tensor],
    autoencoder: Callable[[Tensor], Tensor] | SparseAutoencoder,
    *,
    mean: Tensor,
    skip_positions: int = 1,
) -> dict[str, float]:
    """How much of a causal language model's performance remains when its states are reconstructed.

    Cost: three passes of the model over all batches.

    Args:
        model: a model that returns ``logits`` for tokens, as those of transformers do.
        hook_point: the name of the module whose output is replaced.
        batches: tokens (B, length), without padding.
        autoencoder: an autoencoder, or any function from states (B, d) to states.
        mean: the mean of the states, which replaces them in the ablated model.
        skip_positions: leave this many first positions unchanged.

    Returns:
        ``ce_loss_without_sae``, ``ce_loss_with_sae``, ``ce_loss_with_ablation``, ``ce_loss_score``; the
        same for ``kl_div_…`` (the clean model has 0).

    Example:
        >>> from types import SimpleNamespace
        >>> class Bigram(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 9)
        ...
        ...     def forward(self, tokens):
        ...         return SimpleNamespace(logits=self.head(self.embed(tokens)))
        >>> tokens = [torch.arange(9).view(1, 9)]
        >>> found = language_model_metrics(Bigram(), "embed", tokens, lambda x: x, mean=torch.zeros(4))
        >>> found["ce_loss_score"]  # nothing is lost
        1.0

    Reference: Karvonen et al. (2025), SAEBench, arXiv:2503.09532.
    """
    modules = dict(model.named_modules())  # pyright: ignore[reportUnknownArgumentType]
    if hook_point not in modules or not hook_point:
        raise ValueError(
            f"language_model_metrics: hook_point must be the name of a module, got {hook_point!r}"
        )

    def reconstructed(states: Tensor) -> Tensor:
        flat = states.reshape(-1, states.shape[-1])
        out = autoencoder(flat)
        return (out if isinstance(out, Tensor) else out.sae_out).view_as(states).to(states.dtype)

    def ablated(states: Tensor) -> Tensor:
        return mean.to(states.dtype).expand_as(states)

    def logits(tokens: Tensor, replace: Callable[[Tensor], Tensor] | None) -> Tensor:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> Any:
            states = cast(Tensor, output[0] if isinstance(output, tuple) else output)
            assert replace is not None
            new = torch.cat([states[:, :skip_positions], replace(states[:, skip_positions:])], 1)
            return (new, *output[1:]) if isinstance(output, tuple) else new  # pyright: ignore[reportUnknownVariableType]

        handle = None if replace is None else modules[hook_point].register_forward_hook(hook)
        try:
            return functional.log_softmax(model(tokens).logits[:, :-1].float(), -1)
        finally:
            if handle is not None:
                handle.remove()

    ways = {"without_sae": None, "with_sae": reconstructed, "with_ablation": ablated}
    losses, apart, count = dict.fromkeys(ways, 0.0), dict.fromkeys(ways, 0.0), 0
    for tokens in batches:
        clean = logits(tokens, None)
        count += tokens[:, 1:].numel()
        for way, replace in ways.items():
            found = clean if replace is None else logits(tokens, replace)
            losses[way] -= found.gather(-1, tokens[:, 1:, None]).sum().item()
            apart[way] += (clean.exp() * (clean - found)).sum().item()
    if not count:
        raise ValueError("language_model_metrics: batches must not be empty")
    ce = {f"ce_loss_{way}": value / count for way, value in losses.items()}
    kl = {f"kl_div_{way}": value / count for way, value in apart.items() if way != "without_sae"}
    return {
        **ce,
        "ce_loss_score": _share(
            ce["ce_loss_with_ablation"], ce["ce_loss_with_sae"], ce["ce_loss_without_sae"]
        ),
        **kl,
        "kl_div_score": _share(kl["kl_div_with_ablation"], kl["kl_div_with_sae"], 0.0),
    }


def _share(ablated: float, with_sae: float, clean: float) -> float:
    return (ablated - with_sae) / (ablated - clean) if ablated != clean else 1.0
