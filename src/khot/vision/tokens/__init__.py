"""Token reduction in vision transformers: keep the most attended tokens, differentiably."""

from khot.vision.tokens.flops import count_flops
from khot.vision.tokens.reduce import reduce_tokens, restore_tokens
from khot.vision.tokens.reduction import TokenReduction

__all__ = ["TokenReduction", "count_flops", "reduce_tokens", "restore_tokens"]
