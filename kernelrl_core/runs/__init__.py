"""Run directories: journals, checkpoints, provenance, and the functions that read them."""
