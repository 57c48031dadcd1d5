"""Published experiments, repeated: `khot reproduce`.

One file in `experiments/` each; `run` does what is not done yet, `ledger` keeps it, `page` shows all of it.
"""
