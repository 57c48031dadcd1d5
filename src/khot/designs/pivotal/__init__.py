"""Pivotal designs: pairs of units duel, and each duel decides one of the two."""
