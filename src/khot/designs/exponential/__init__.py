"""The exponential family of k-hot vectors, and designs made of it."""
