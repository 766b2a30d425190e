"""Data flow of a PyTorch reference: the graph of operators between the inputs and the result of `forward`.

The source is evaluated symbolically, never executed: helper functions, submodules and loops over module lists are
expanded, so that the graph does not depend on names, formatting, the order of independent statements, or on a module
that only calls another one. Numbers become `#`; strings and booleans stay, because they select a variant of an operator
(`bias=False`, `approximate="tanh"`). A loop over `range` is evaluated once.
"""
