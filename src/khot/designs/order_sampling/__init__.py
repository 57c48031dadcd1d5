"""Order sampling: the k units that come first in a random order."""
