"""Denial of compilers and build tools to a candidate, with an error that names the reason and the alternative."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

__all__ = ["ToolDenied", "deny_tools"]

_TOOLS = {"ninja", "nvcc", "hipcc", "g++", "c++", "clang++"}
_WORD = re.compile(r"[\w./+-]+")
_STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn"}
"""Audit events of starting a program."""


class ToolDenied(BaseException):
    """A candidate starts a compiler or a build tool itself.

    Torch starts them where it would suppress an ordinary exception.
    """


def deny_tools(instead: str) -> None:
    """Deny compilers and build tools to this process permanently.

    The sandbox is the protection against them. This denial only gives a clear error.

    Args:
        instead: the alternative that the error names.
    """

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _STARTS:
            return
        program_and_arguments = arguments[:2]
        words = {word for part in program_and_arguments for word in _WORD.findall(str(part)) if word[0] != "-"}
        for tool in sorted({os.path.basename(word) for word in words} & _TOOLS):
            raise ToolDenied(f"denied: running {tool} is not allowed to a candidate; {instead}")

    sys.addaudithook(hook)
