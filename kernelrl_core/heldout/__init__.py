"""Held-out evaluation: a policy measured on a split with pass@k, fast_p and speedups."""
