"""The user's package in a runner: a private copy of read-only files beside the candidate, which it may import."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping

__all__ = ["folder_of", "install"]

_READ_ONLY = 0o444


def folder_of(path: str) -> str:
    """The directory of the package.

    Args:
        path: of the candidate's source.
    """
    return os.path.join(os.path.dirname(path), "package")


def install(files: Mapping[str, str], path: str) -> None:
    """Write the files and let the candidate import them.

    A candidate can give itself the right to write here. The copy is its own: no other process reads it.

    Args:
        files: relative path -> text.
        path: of the candidate's source.
    """
    root = folder_of(path)
    # Where the sandbox has no private directories, that of the last candidate is still there.
    shutil.rmtree(root, ignore_errors=True)
    for name, text in files.items():
        place = os.path.join(root, name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            file.write(text)
        os.chmod(place, _READ_ONLY)
    sys.dont_write_bytecode = True
    sys.path.insert(0, root)
