"""Files with kernels: a Python file, a saved reply, standard input, or a folder of Python files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kernelrl_core.errors import UsageError

__all__ = ["STANDARD_INPUT", "kernel_files", "read_kernel"]

STANDARD_INPUT = "-"
_MAX_BYTES = 4 << 20


def kernel_files(names: Sequence[str]) -> list[str]:
    """The files that `names` select, each once: a folder gives its `*.py` files, ordered by name.

    Files whose name starts with `_` or `.` are not selected by their folder.

    Raises:
        UsageError: a folder has no such file.
    """
    found: list[str] = []
    for name in names:
        path = Path(name)
        if name == STANDARD_INPUT or not path.is_dir():
            found.append(name)
            continue
        inside = [str(file) for file in sorted(path.glob("*.py")) if file.name[0] not in "._" and file.is_file()]
        if not inside:
            raise UsageError(f"{name}: the directory has no file *.py", fix="name a kernel file")
        found += inside
    return list(dict.fromkeys(found))


def read_kernel(name: str) -> str:
    """The text of a kernel file, or of standard input.

    Binary or oversized input is a bad kernel and gets an outcome, so its first 4 MiB are returned, undecodable bytes
    replaced.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        if name == STANDARD_INPUT:
            content = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name}: kernel file cannot be read: {error.strerror}") from None
    return content.decode("utf-8", "replace")
