"""The judge's side of a runner: its process, messages, device lease, builds, shared memory and recordings."""
