"""The runner half of a backend: the modes in which it executes candidates, and the import of a candidate's file."""

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
"""Mode -> why its kernels have no run time."""


class CandidateRunner(BackendRunner):
    """A `BackendRunner` that imports the candidate's file: decorators of kernels read the source of their functions."""

    def load(self, path: str, options: Mapping[str, Any]) -> Any:
        """Import the file and return `ModelNew`.

        Raises:
            AttributeError: the module defines no `ModelNew`.
            What `import_candidate` raises.
        """
        return import_candidate(path).ModelNew


def import_candidate(path: str) -> types.ModuleType:
    """Execute the file as the module `candidate`: decorators find the source of their functions in it.

    They find it as it is now, whatever is written into the file later.

    Raises:
        SyntaxError: the file declares an encoding other than UTF-8, in which it means something else than it says.
        What the candidate's code raises.
    """
    with open(path, "rb") as file:
        encoding = tokenize.detect_encoding(file.readline)[0]
    if encoding not in ("utf-8", "utf-8-sig"):
        raise SyntaxError(f"the source declares the encoding {encoding}; write it in UTF-8")
    with tokenize.open(path) as text:
        lines = text.readlines()
    # Entries without a time of change are never read again.
    linecache.cache[path] = (sum(map(len, lines)), None, lines, path)
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    return module
