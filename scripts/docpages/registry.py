"""The components of the bundled plugins, whatever else is installed."""

from __future__ import annotations

from collections.abc import Iterator

from kernelrl_core.interfaces.component import Component
from kernelrl_core.plugins.known_distributions import distribution_of
from kernelrl_core.plugins.registry import registry


def bundled(kind: str) -> Iterator[tuple[str, str, Component]]:
    """Distribution, name and component of each bundled component of a kind.

    Raises:
        RuntimeError: a bundled distribution is not installed, or it is broken.
    """
    for plugin in registry().plugins:
        for component in plugin.components.get(kind, ()):
            known = "kernelrl" if plugin.name == "core" else distribution_of(kind, component.name)
            if known == plugin.dist:
                yield plugin.dist, registry().label(kind, component), component
