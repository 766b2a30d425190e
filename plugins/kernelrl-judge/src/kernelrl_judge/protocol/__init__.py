"""Shared by judge and runner: messages, values as bytes, and the layout of shared memory."""
