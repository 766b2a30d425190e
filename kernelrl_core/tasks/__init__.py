"""The tasks of a run: selection, schedule, curriculum, lookup."""
