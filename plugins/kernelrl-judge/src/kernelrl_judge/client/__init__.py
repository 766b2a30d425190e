"""Judge processes as the main process sees them. Imports no torch."""
