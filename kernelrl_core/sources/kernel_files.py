"""Files with kernels: Python, C++, CUDA or HIP, a saved reply, standard input, or a folder of such files."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from kernelrl_core.errors import UsageError, nearest_path
from kernelrl_core.sources.packages import absolute_imports, module_name, read_package, require_importable
from kernelrl_core.sources.plain_functions import EXTENSION_SUFFIXES, as_model, extension_as_model

__all__ = ["KERNEL_SUFFIXES", "STANDARD_INPUT", "KernelReader", "kernel_files", "read_kernel", "skipped_files"]

STANDARD_INPUT = "-"
KERNEL_SUFFIXES = (".py", *EXTENSION_SUFFIXES)
"""Suffixes of the files that a folder of kernels selects."""
_MAX_BYTES = 4 << 20


@attrs.frozen
class KernelReader:
    """Reads kernel files as sources that define `ModelNew`."""

    function: str = ""
    """Function that is the kernel; empty: a Python file defines `ModelNew`, other files have one function."""
    path: str = ""
    """Directory of the user's package; empty: none."""
    package: Mapping[str, str] = attrs.field(factory=dict)
    """Its files: path relative to the import root -> text."""

    @classmethod
    def opened(cls, function: str = "", path: str = "") -> KernelReader:
        """A reader that has read the package.

        Raises:
            UsageError: the package cannot be read.
        """
        return cls(function, path, read_package(path) if path else {})

    def read(self, name: str, function: str = "") -> str:
        """The source of a kernel file, or a saved reply as it is.

        Args:
            function: in place of that of the reader.

        Raises:
            UsageError: the file cannot be read, lacks the function, or imports a package that does not travel.
        """
        text, function = read_kernel(name), function or self.function
        if Path(name).suffix in EXTENSION_SUFFIXES:
            return extension_as_model(text, function, name)
        if self.path and (module := module_name(name, self.path)):
            text = absolute_imports(text, module)
        if name != STANDARD_INPUT:
            require_importable(text, name, self.package)
        return as_model(text, function, name) if function else text


def kernel_files(names: Sequence[str]) -> list[str]:
    """The files that `names` select, each once: a folder gives its files with `KERNEL_SUFFIXES`, ordered by name.

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
        inside = [
            str(file)
            for file in sorted(path.iterdir())
            if file.suffix in KERNEL_SUFFIXES and file.name[0] not in "._" and file.is_file()
        ]
        if not inside:
            raise UsageError(f"{name}: the directory has no file *.py", fix="name a kernel file", see="kernel-files")
        found += inside
    return list(dict.fromkeys(found))


def skipped_files(names: Sequence[str]) -> list[str]:
    """A line for each folder among `names` in which `kernel_files` does not select everything: how many entries, and
    why."""
    lines = []
    for name in names:
        if name == STANDARD_INPUT or not Path(name).is_dir():
            continue
        try:
            entries = list(Path(name).iterdir())
        except OSError:
            continue  # `kernel_files` finds nothing there
        hidden = sum(entry.name[0] in "._" for entry in entries)
        shown = [entry for entry in entries if entry.name[0] not in "._"]
        folders = sum(entry.is_dir() for entry in shown)
        others = sum(entry.suffix not in KERNEL_SUFFIXES and not entry.is_dir() for entry in shown)
        reasons = [
            (others, "without the suffix of a kernel"),
            (hidden, "with a name that begins with _ or ."),
            (folders, "in the form of a folder"),
        ]
        if hidden + folders + others:
            counted = ", ".join(f"{count} {reason}" for count, reason in reasons if count)
            entries_word = "entry" if hidden + folders + others == 1 else "entries"
            lines.append(f"{name}: skipped {hidden + folders + others} {entries_word}: {counted}")
    return lines


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
        close = nearest_path(name) if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"{name}: kernel file cannot be read: {error.strerror}{close}", see="kernel-files") from None
    return content.decode("utf-8", "replace")
