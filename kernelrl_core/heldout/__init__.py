"""Evaluation of a policy on a split: pass@k, fast_p, statistics."""
