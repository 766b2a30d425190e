"""The base class of every component's options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

import attrs

from kernelrl_core.interfaces.requirements import Requires

__all__ = ["ComponentConfig", "MachineFact"]


@attrs.frozen
class MachineFact:
    """Something that `kernelrl doctor` shows about this machine."""

    label: str
    """Name of the thing, such as `nvcc` or `isolation`."""
    detail: str
    """Version, path or level."""
    state: Literal["ok", "weak", "broken"] = "ok"
    """`weak`: it works with less protection or speed; `broken`: it is there and fails."""
    fix: str = ""
    """The command that improves it; empty where nothing needs to be done."""


@attrs.frozen
class ComponentConfig:
    """Options of a component. Derive a frozen attrs class from the base of the component's kind.

    Fields are recipe keys. The methods below are the only public ones; `kernelrl plugins check` reports any other, so
    that a misspelt method is an error and not ignored.
    """

    renamed_options: ClassVar[Mapping[str, str]] = {}
    """Former name of an option -> its field. A recipe may still use the former name, but not both."""

    def requires(self) -> Requires:
        """Prerequisites that depend on the options, beside those of the `Component`."""
        return Requires()

    def problems(self) -> Iterable[str]:
        """Contradictions among the options, one sentence each."""
        return ()

    def found_here(self) -> Iterable[MachineFact]:
        """What this machine has for the component, such as compilers and their versions.

        Asked for by `kernelrl doctor` when all options have defaults. May start processes; imports nothing heavy.
        """
        return ()
