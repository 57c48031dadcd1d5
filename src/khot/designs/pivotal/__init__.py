"""Pivotal designs: units meet in duels that leave one of the two decided."""
