"""Splitting designs: units are drawn or eliminated one after the other."""
