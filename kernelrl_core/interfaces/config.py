"""Base class of the options of all components."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import attrs

from kernelrl_core.interfaces.requirements import Requires

__all__ = ["ComponentConfig", "MachineFact"]


@attrs.frozen
class MachineFact:
    """A property of this machine for `kernelrl doctor`."""

    label: str
    """Name, such as `nvcc` or `isolation`."""
    detail: str
    """Version, path or level."""
    state: Literal["ok", "weak", "broken", "pending"] = "ok"
    """`weak`: works with less protection or speed; `broken`: is installed and fails; `pending`: the first use prepares
    it and takes longer than later ones. `kernelrl run` prints pending preparations."""
    fix: str = ""
    """Command that improves the state; empty if none is needed."""


@attrs.frozen
class ComponentConfig:
    """Options of a component. Derive a frozen attrs class from the options base class of the component's kind.

    Fields are recipe keys. `kernelrl plugins check` reports every public method that the base class does not define,
    because the core would never call it.
    """

    renamed_options: ClassVar[Mapping[str, str]] = {}
    """Former name of an option -> its field. A recipe may use the former name or the field, not both."""
    check_options: ClassVar[Mapping[str, Any]] = {}
    """Options with which `kernelrl plugins check` and the contract tests make the component, as a recipe writes them.
    Name those without a default, and those that make the component small. Empty: the defaults."""

    def requires(self) -> Requires:
        """Prerequisites that depend on the options, in addition to `Component.requires`."""
        return Requires()

    def problems(self) -> Iterable[str]:
        """Contradictions among the options, one sentence each. `kernelrl validate` prints them."""
        return ()

    def idle_options(self) -> Mapping[str, str]:
        """Options that have no effect beside the others: name -> reason. A recipe that sets one gets a warning."""
        return {}

    def found_here(self) -> Iterable[MachineFact]:
        """Properties of this machine that matter to the component, such as compilers and their versions.

        Called by `kernelrl doctor` if all options have defaults. May start processes; imports nothing heavy.
        """
        return ()
