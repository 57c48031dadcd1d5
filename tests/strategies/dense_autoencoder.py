"""A sparse autoencoder as the papers write it: dense latents, autograd through torch operations alone."""

import torch


def scores_of(autoencoder, x):
    """Pre-activations, and what is compared: times the decoder's norms where these count."""
    centred = x - autoencoder.b_dec if autoencoder.options.subtract_b_dec else x
    pre = centred @ autoencoder.W_enc.T + autoencoder.b_enc
    norms = autoencoder.W_dec.detach().norm(dim=-1) if autoencoder.options.scale_by_decoder_norm else 1.0
    return pre, pre * norms, norms


def hard_mask(scores, k):
    """Ones at the k largest of each row, by sorting."""
    order = scores.detach().sort(dim=-1, descending=True, stable=True).indices[..., :k]
    return torch.zeros_like(scores).scatter(-1, order, 1.0)


def bisected_sigmoid_topk(scores, k, temperature):
    """σ((s − t)/τ) with the threshold t at which a row has the sum k, by bisection and one differentiable
    step."""
    low = scores.detach().amin(-1, keepdim=True) - 60 * temperature
    high = scores.detach().amax(-1, keepdim=True) + 60 * temperature
    for _ in range(200):
        middle = (low + high) / 2
        above = torch.sigmoid((scores.detach() - middle) / temperature).sum(-1, keepdim=True) > k
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    gates = torch.sigmoid((scores - low) / temperature)
    slopes = (gates * (1 - gates)).detach()
    # Newton's step is 0 in value; its gradient is that of the threshold.
    shift = temperature * (gates.sum(-1, keepdim=True) - k) / slopes.sum(-1, keepdim=True)
    return torch.sigmoid((scores - low - shift) / temperature)


def latents_of(autoencoder, x, *, k=None, temperature=None):
    """Dense latents as they are decoded, and as they are reported."""
    options = autoencoder.options
    pre, scores, norms = scores_of(autoencoder, x)
    k = options.k if k is None else k
    threshold = autoencoder.threshold
    if options.activation == "jumprelu" or (options.activation == "batch_topk" and not autoencoder.training):
        mask = (scores > threshold.clamp_min(0)).to(pre.dtype)
    elif options.activation == "batch_topk":
        mask = hard_mask(scores.reshape(1, -1), k * len(x)).view_as(scores)
    elif temperature is not None:
        kept = hard_mask(scores, options.candidates).bool()
        few = scores[kept].view(len(x), options.candidates)
        mask = torch.zeros_like(scores).masked_scatter(kept, bisected_sigmoid_topk(few, k, temperature))
    else:
        mask = hard_mask(scores, k)
    decoded = pre.relu() * mask
    return decoded, decoded * norms


def reconstruct(autoencoder, x, **options):
    """The dense form's output."""
    out = latents_of(autoencoder, x, **options)[0] @ autoencoder.W_dec + autoencoder.b_dec
    return out if autoencoder.W_skip is None else out + x @ autoencoder.W_skip.T
