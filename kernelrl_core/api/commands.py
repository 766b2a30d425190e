"""Write a command: tables and JSON on stdout, checks of the files that it writes."""

from __future__ import annotations

from kernelrl_core.cli.output import difference_table, print_json, print_lines, require_output, require_writable, table

__all__ = [
    "difference_table",
    "print_json",
    "print_lines",
    "require_output",
    "require_writable",
    "table",
]
