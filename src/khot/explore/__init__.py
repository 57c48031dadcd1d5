"""A page to play with: scores, k and the temperature under your hand, operators and designs side by side.

``khot explore`` serves it on this machine alone; it needs ``khot[explore]``. The documentation embeds the
same page with the operators that a browser can compute by itself.
"""
