"""Entry point of `kernelrl`: gives a check to a running service, or starts the command line."""

from __future__ import annotations

import sys

from kernelrl_core.cli.loading import load
from kernelrl_core.cli.served_check import served_check

__all__ = ["main"]


def main() -> None:
    """Run the command of this process, and exit with its exit code (`ExitCode`)."""
    code = served_check(sys.argv[1:])
    if code is None:
        load("kernelrl_core.cli.main:main")()
    sys.exit(code)
