"""`kernelrl optimize`: a search for a better kernel of one task, as a run directory that can be continued."""
