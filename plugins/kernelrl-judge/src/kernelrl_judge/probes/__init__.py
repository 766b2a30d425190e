"""Checks of one candidate: its outputs, effects, own kernels, and harder inputs."""
