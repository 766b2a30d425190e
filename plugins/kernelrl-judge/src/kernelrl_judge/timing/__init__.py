"""Measures calls of the candidate and of the baseline, by replay or directly."""
