"""The result of a run on stdout."""

from __future__ import annotations

from kernelrl_core.cli.output import print_json, print_lines, table
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.summary import result_rows, summary

__all__ = ["print_result"]


def print_result(run: RunDir, *, as_json: bool) -> None:
    """Print the result of a run on stdout."""
    facts = summary(run)
    if as_json:
        print_json(facts)
    else:
        print_lines(table(result_rows(facts)))
