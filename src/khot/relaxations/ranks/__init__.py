"""Soft ranks and what is made of them: sorting, quantiles, windows around ranks, bounds."""
