"""Importing the file of a candidate, inside its runner."""

from __future__ import annotations

import importlib.util
import sys
import types

__all__ = ["import_candidate"]


def import_candidate(path: str) -> types.ModuleType:
    """Execute the file as the module `candidate`: decorators find the source of their functions in it.

    Raises whatever the candidate's code raises.
    """
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    return module
