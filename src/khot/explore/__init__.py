"""An interactive page: drag scores, k and the temperature, and see operators and designs side by side.

``khot explore`` serves it on this machine only; it needs ``khot[explore]``. The documentation embeds the same
page with the operators that a browser can compute by itself.
"""
