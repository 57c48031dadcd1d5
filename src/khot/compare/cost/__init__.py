"""Time and memory of one call: of an operator for `khot compare`, of any function for the benchmarks.

A `Side` is a named function of scores and k, a `Case` is its input. `timing` compares calls in one process,
`memory` measures a call in a separate process.
"""
