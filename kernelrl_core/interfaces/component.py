"""What a plugin offers, said without importing it."""

from __future__ import annotations

import importlib
from typing import Any, Literal

import attrs

__all__ = ["Component", "Requires"]


@attrs.frozen
class Requires:
    """What must be present before a component can work. Core checks it; the component's code is not asked."""

    modules: tuple[str, ...] = ()
    """Importable modules, such as `triton`. Found without importing them."""
    executables: tuple[str, ...] = ()
    """Programs on PATH, such as `nvcc`."""
    environment: tuple[str, ...] = ()
    """Environment variables that must be set and not empty, such as `TINKER_API_KEY`."""
    gpu: Literal["", "any", "nvidia", "amd"] = ""
    """A GPU of this vendor."""
    url: str = ""
    """A server that must answer."""
    fix: str = ""
    """The command or change that provides what is missing; empty takes the usual one of each item."""


@attrs.frozen
class Component:
    """One thing a plugin offers. Cheap to make: implementation and options are named, not imported.

    The implementation is called with one argument, an instance of the config class, or with none when there is no
    config class; what it must then offer is said in `kernelrl_core.interfaces.kinds`. A command is used as it is.
    """

    name: str
    """Name a recipe writes after `use:`."""
    target: str
    """Implementation as `module:attribute`, imported only when a recipe uses it."""
    config: str = ""
    """Class of its options as `module:attribute`: a frozen attrs class in a module without heavy imports. Empty: no
    options.

    Its fields are the keys a recipe may write beside `use`; the docstring under each field is its help. It may define
    `requires(self) -> Requires` for what depends on the options, and `problems(self) -> Iterable[str]` for
    contradictions; that of an evaluator or a backend also `requires_for(self, settings: EvaluationSettings) ->
    Requires`, and that of a policy or an evaluator `prices(self) -> Mapping[str, float]`, what it charges, under the
    names of `recipe.schema.PriceSettings`. With `found_here(self) -> Mapping[str, str]`, a class whose options all have
    defaults tells `kernelrl doctor` what this machine has for it, such as compilers and their versions.
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
