"""Colours of the first line of a result in a terminal. Imports nothing: see `served_check`."""

__all__ = ["colour_of"]

_COLOURS = {"correct": "green", "suspect": "yellow", "not executed": "yellow"}


def colour_of(line: str) -> str:
    """`green`, `yellow` or `red` by the first words of a line."""
    return next((colour for words, colour in _COLOURS.items() if line.startswith(words)), "red")
