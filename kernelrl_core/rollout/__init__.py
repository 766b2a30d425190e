"""Sampling and evaluating all episodes of a step or of a split."""
