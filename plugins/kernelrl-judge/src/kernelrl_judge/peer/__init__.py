"""The judge's side of a runner: its process, its memory, the dialogue with it, the replay of its recordings."""
