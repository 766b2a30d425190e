"""A component as its plugin declares it, without importing it."""

from __future__ import annotations

import importlib
from typing import Any

import attrs

from kernelrl_core.interfaces.requirements import Requires

__all__ = ["Component"]


@attrs.frozen
class Component:
    """One thing a plugin offers. Cheap to make: implementation and options are named, not imported.

    The implementation is called with one argument, an instance of the config class, or with none when there is no
    config class. What it must derive from is documented in `kernelrl_core.interfaces`, one file per kind. An advantage
    and a command are plain callables.
    """

    name: str
    """Name a recipe writes after `use:`."""
    target: str
    """Implementation as `module:attribute`, imported only when a recipe uses it."""
    config: str = ""
    """Class of its options as `module:attribute`: a frozen attrs class in a module without heavy imports, derived from
    the config base of its kind, such as `RewardConfig`. Empty: no options.

    Its fields are the keys a recipe may write beside `use`; the docstring under each field is its help.
    """
    summary: str = ""
    """One line for tables."""
    requires: Requires = Requires()

    def load(self) -> Any:
        """Import the implementation.

        Raises:
            ImportError: the module is missing or fails to import.
            AttributeError: the module lacks the attribute.
        """
        return _load(self.target)

    def load_config(self) -> Any:
        """Import the class of the options, or None when the component has none."""
        return _load(self.config) if self.config else None


def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found
