"""Which tasks a run works on: selection, schedule, curriculum, audits, lookup."""
