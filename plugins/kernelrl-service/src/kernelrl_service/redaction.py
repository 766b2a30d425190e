"""Responses without paths of this machine.

Logs of compilers and tracebacks name files. The directories of this machine are replaced, the rest of a path stays:
`/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py` becomes `torch/nn/modules/module.py`.
"""

from __future__ import annotations

import os
import re
import site
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kernelrl_core.api.config import cache_directory

__all__ = ["Redaction"]

_HOST = "HOST"


class Redaction:
    """Replaces directories of this machine, and its name, in texts.

    Args:
        directories: further directories.
    """

    def __init__(self, directories: Iterable[Path] = ()) -> None:
        packages: list[str] = [*site.getsitepackages(), *sysconfig.get_paths().values(), *sys.path]
        general = [sys.prefix, sys.base_prefix, tempfile.gettempdir(), str(Path.home()), os.getcwd()]
        own = [str(path) for path in (*directories, cache_directory())]
        found = {os.path.abspath(path) for path in (*packages, *general, *own) if path}
        found |= {os.path.realpath(path) for path in found}
        # A directory such as / or /usr occurs in ordinary text.
        longest_first = sorted((path for path in found if path.count("/") > 1), key=len, reverse=True)
        short = sorted((path for path in found if path.count("/") == 1 and path != "/"), key=len, reverse=True)
        alternatives = [f"{re.escape(path)}(?:/|(?![\\w-]))" for path in (*longest_first, *short)]
        self._paths = re.compile("|".join(alternatives))
        host = socket.gethostname()
        self._host = re.compile(rf"\b{re.escape(host)}\b") if len(host) > 3 and host != "localhost" else None

    def text(self, text: str) -> str:
        """A text without directories of this machine."""
        if "/" in text:
            text = self._paths.sub("", text)
        return self._host.sub(_HOST, text) if self._host is not None else text

    def __call__(self, value: Any) -> Any:
        """Plain data without directories of this machine in its texts and keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self(item) for item in value]
        return value
