"""Keeps untrusted processes apart: namespaces, system calls, control groups, limits, CPU cores."""
