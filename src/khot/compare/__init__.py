"""`khot compare`: which operator is right for you, measured on your machine.

`quality` has the numbers of one operator at one case, `cost/` what a call takes, `run` those of all
operators, and `report/` shows them, as tables and in one self-contained HTML file.
"""
