"""The run on disk: directory, journals, checkpoints, provenance, and what is read back from them."""
