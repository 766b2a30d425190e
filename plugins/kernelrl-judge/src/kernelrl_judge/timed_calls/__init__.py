"""Timed calls: the same code for the candidate in its runner and for the reference in the judge."""
