"""Order sampling: draw the k units that come first in a random order."""
