"""Token reduction in vision transformers: the most attended tokens go on, differentiably."""

from khot.vision.tokens.flops import count_flops
from khot.vision.tokens.reduce import reduce_tokens, restore_tokens
from khot.vision.tokens.reduction import TokenReduction

__all__ = ["TokenReduction", "count_flops", "reduce_tokens", "restore_tokens"]
