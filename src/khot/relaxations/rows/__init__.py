"""Operators with one row per rank: sorting matrices, sorting networks, successive draws, transport."""
