"""`khot compare`: which operator is right for you, measured on your machine.

`quality` measures the quality of one operator in one case, `cost/` its time and memory, `run` all operators
in all cases, and `report/` shows the results, as tables and in one self-contained HTML file.
"""
