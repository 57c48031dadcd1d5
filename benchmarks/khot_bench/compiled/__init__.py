"""What ``torch.compile`` costs and gives: time to compile, programs made, running time beside eager."""
