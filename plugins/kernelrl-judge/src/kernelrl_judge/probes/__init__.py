"""Correctness of one candidate: trials, harder inputs, effects on inputs and state, own kernels."""
