"""Limits of the package that travels with a kernel."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

__all__ = ["MAX_PACKAGE_BYTES", "MAX_PACKAGE_FILES", "package_problem"]

MAX_PACKAGE_FILES = 2_000
MAX_PACKAGE_BYTES = 4 << 20
"""Of all texts in UTF-8. A request with them must fit into the body that a server accepts."""
_MAX_PATH = 400


def package_problem(files: Mapping[str, str]) -> str:
    """The reason why files cannot travel with a kernel; empty if they can.

    Args:
        files: relative path -> text.
    """
    if len(files) > MAX_PACKAGE_FILES:
        return f"{len(files):,} files; at most {MAX_PACKAGE_FILES:,} are accepted"
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in files.values())
    if size > MAX_PACKAGE_BYTES:
        return f"{size:,} bytes; at most {MAX_PACKAGE_BYTES:,} are accepted"
    for path in files:
        is_plain = posixpath.normpath(path) == path and "\0" not in path and len(path) <= _MAX_PATH
        if not is_plain or path.startswith(("/", "../")) or path in (".", ".."):
            return f"the path {path[:_MAX_PATH]!r} is not one inside a directory"
    return ""
