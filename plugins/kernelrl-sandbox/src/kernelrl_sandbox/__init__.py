"""Sandbox for processes of untrusted code: namespaces, privileges, limits and a filter of system calls."""
