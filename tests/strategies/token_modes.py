"""Ways to train with fewer tokens, by one word each: a mode, or a method in mode soft."""

from khot.vision.tokens.reduce import MODES

__all__ = ["MODES", "way"]


def way(name: str) -> dict[str, str]:
    """The arguments of ``reduce_tokens``."""
    return {"mode": name} if name in MODES else {"mode": "soft", "method": name}
