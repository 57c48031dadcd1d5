"""Operators with a row for every rank: sorting matrices, sorting networks, sequences of draws, transport."""
