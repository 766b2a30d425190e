"""Rollouts: sampling and evaluating all episodes of a step or a split."""
