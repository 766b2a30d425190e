"""Commands: further commands of `kernelrl`.

A command is a `click.Command`. Its module is imported when the command runs or prints its help; `kernelrl --help` shows
the summary of the component. Import heavy modules inside the function. Results are written to stdout, messages to
stderr; raise the errors of `kernelrl_core.api.errors`, which have exit codes.

`kernelrl plugins new commands NAME` writes a sample plugin.
"""

from __future__ import annotations

from kernelrl_core.interfaces.config import ComponentConfig

__all__ = ["ComponentConfig"]
