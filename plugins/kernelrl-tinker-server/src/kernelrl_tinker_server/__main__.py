"""`python -m kernelrl_tinker_server`: the command `kernelrl tinker-server` without the other commands."""

from __future__ import annotations

import sys

from kernelrl_core.api.errors import KernelRLError
from kernelrl_tinker_server.command import command

if __name__ == "__main__":
    try:
        command()
    except KernelRLError as error:
        print(error, file=sys.stderr)
        sys.exit(int(error.exit_code))
