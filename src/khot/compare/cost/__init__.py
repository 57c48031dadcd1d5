"""Time and memory of one call: of an operator for `khot compare`, of any side for the benchmarks.

A `Side` is a named function of scores and k, a `Case` its input. `timing` compares calls in one process,
`memory` measures one in a process of its own.
"""
