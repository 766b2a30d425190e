"""Behaviour of references of others: their outputs for inputs of tasks, called in the sandbox."""
