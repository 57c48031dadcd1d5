"""The threshold family: one gate per entry, and one shared threshold that makes the weights sum to k."""
