"""The base class of the backends' `BackendRunner`: modes without run times, and the import of a candidate's file."""

from __future__ import annotations

import importlib.util
import linecache
import sys
import tokenize
import types
from collections.abc import Mapping
from typing import Any

from kernelrl_core.api.backends import BackendRunner

__all__ = ["UNTIMED", "CandidateRunner", "import_candidate"]

UNTIMED: Mapping[str, str] = {
    "interpreter": "Triton's interpreter has no meaningful run time",
    "compile": "kernels are compiled here, and not executed",
}
"""Mode -> the reason why its kernels have no run time."""


class CandidateRunner(BackendRunner):
    """A `BackendRunner` that imports the candidate's file, so that decorators of kernels can read their source."""

    def load(self, path: str, options: Mapping[str, Any]) -> Any:
        """Import the file and return `ModelNew`.

        Raises:
            AttributeError: the module defines no `ModelNew`.
            Exceptions of `import_candidate`.
        """
        return import_candidate(path).ModelNew


def import_candidate(path: str) -> types.ModuleType:
    """Execute the file as the module `candidate`.

    Decorators and tracebacks get the source as it is now, even if the file is changed later.

    Raises:
        SyntaxError: the file declares an encoding other than UTF-8, in which its characters have another meaning.
        Exceptions of the candidate's code.
    """
    with open(path, "rb") as file:
        encoding = tokenize.detect_encoding(file.readline)[0]
    if encoding not in ("utf-8", "utf-8-sig"):
        raise SyntaxError(f"the source declares the encoding {encoding}; write it in UTF-8")
    with tokenize.open(path) as text:
        lines = text.readlines()
    # `linecache` never reads the file again for an entry without a time of change.
    linecache.cache[path] = (sum(map(len, lines)), None, lines, path)
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    return module
