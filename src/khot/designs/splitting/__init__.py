"""Splitting designs: units are drawn or struck off one after the other."""
