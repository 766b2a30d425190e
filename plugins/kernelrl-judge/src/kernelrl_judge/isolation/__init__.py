"""Keeps untrusted processes apart: namespaces, system calls, limits, forks, freezing."""
