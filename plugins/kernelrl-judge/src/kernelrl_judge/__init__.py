"""Judging of untrusted kernels: judge, zygote and runner processes, and the protocol between them."""
