"""`khot compare`: which operator is right for you, measured on your machine.

`measures` has the numbers of one operator at one case, `comparison` those of all, `page` shows them in one
self-contained HTML file, `command` is what the user types.
"""
