"""The adversarial matrix: every operator and every peer against inputs that have broken one of them.

A trap (`traps`, `reported`) is an input and what must hold of the result, whoever gives it; a contestant is a
side and what it promises. The `matrix` runs each contestant in processes of its own (`child`), because some
traps end them. A trap that asks for what an operator does not promise is not held against it.
"""
