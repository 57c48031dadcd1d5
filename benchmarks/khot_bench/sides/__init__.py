"""The sides of the suites beside the registered operators; how to write one: `khot.compare.cost.side`."""
