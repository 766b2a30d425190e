"""Import on use: the only place where the command line defers an import.

The modules of a command import at their top what the command needs. So the overview of the commands and `plugins list`
are fast only if no module of another command is imported before it is called or its help is requested. The few parts
of a command that most calls do not need, and that import much, are loaded here as well.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["load"]


def load(target: str) -> Any:
    """The attribute of a module, written `module:attribute`."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
