"""Systematic designs: one scan with a random start."""
