"""The exponential family of k-hot vectors, and designs built on it."""
