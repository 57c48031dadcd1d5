"""Soft ranks and what builds on them: sorting, quantiles, top-k by windows around ranks, bounds."""
