"""The threshold family: a gate for each entry, tied by one threshold so that the weights sum to k."""
