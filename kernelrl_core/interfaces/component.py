"""Declaration of a component by its plugin, without importing the implementation."""

from __future__ import annotations

import importlib
from typing import Any

import attrs

from kernelrl_core.interfaces.requirements import Requires

__all__ = ["Component"]


@attrs.frozen
class Component:
    """One component of a plugin. It names implementation and options without importing them.

    The core calls the implementation with one argument, an instance of the config class, or without arguments if there
    is no config class. The implementation derives from the base class of its kind (`kernelrl_core.interfaces`, one file
    per kind). The implementation of an advantage or of a command is a plain callable.
    """

    name: str
    """Name that a recipe writes after `use:`."""
    target: str
    """Implementation as `module:attribute`. Imported when a recipe uses the component."""
    config: str = ""
    """Class of the options as `module:attribute`: a frozen attrs class, derived from the options base class of the
    kind, such as `RewardConfig`, in a module without heavy imports. Empty: no options.

    Its fields are the keys that a recipe may write next to `use`; the docstring under each field is its help.
    """
    summary: str = ""
    """One line for tables."""
    requires: Requires = Requires()
    """Prerequisites that do not depend on the options."""
    default: bool = False
    """Whether it serves where nothing names a component of its kind: in `kernelrl check` the backend, the evaluator and
    the checkers; in a recipe the keys `evaluator`, `advantage` and `feedback`; in `kernelrl tasks` the task source. Of
    several defaults of a kind, a bundled one serves."""
    serves_check: str = ""
    """Of an evaluator: function as `module:attribute` that returns whether `kernelrl check` uses it now where nothing
    names an evaluator, in place of the default one. Called without arguments by each such check, so it must be fast.
    Empty: never."""

    def load(self) -> Any:
        """Import the implementation.

        Raises:
            ImportError: the module is missing or its import fails.
            AttributeError: the module has no such attribute.
        """
        return _load(self.target)

    def load_config(self) -> Any:
        """Import the class of the options; None if the component has no options."""
        return _load(self.config) if self.config else None

    def is_serving_check(self) -> bool:
        """Whether `kernelrl check` uses this evaluator now. Imports and calls `serves_check`."""
        return bool(_load(self.serves_check)()) if self.serves_check else False


def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found
