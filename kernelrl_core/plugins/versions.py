"""Versions that a worker elsewhere must share with its client, so that a verdict does not depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import metadata

from kernelrl_core.errors import MissingPrerequisite
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.version import __version__

__all__ = ["require_same_versions", "worker_versions"]

_ALWAYS = ("python", "kernelrl")


def worker_versions(registry: Registry, *distributions: str) -> dict[str, str]:
    """Versions of Python (`3.11`), of kernelrl, of the plugins that offer a backend, and of the given distributions."""
    found = {"python": ".".join(map(str, sys.version_info[:2])), "kernelrl": __version__}
    for plugin in registry.plugins:
        if plugin.state == "ok" and "backends" in plugin.components:
            found[plugin.dist] = plugin.version
    for distribution in distributions:
        try:
            found[distribution] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            found[distribution] = "not installed"
    return found


def require_same_versions(
    here: Mapping[str, str], there: Mapping[str, str], where: str, *, distributions: tuple[str, ...] = (), fix: str
) -> None:
    """Compare `worker_versions` of client and worker. A backend that only one of them has is no difference unless its
    distribution is given.

    Args:
        where: the worker in the message, such as `worker gpu-box`.
        distributions: must be installed on both.

    Raises:
        MissingPrerequisite: a version differs; the message lists all of them.
    """
    required = {*_ALWAYS, *distributions}
    names = [name for name in here.keys() | there.keys() if name in required or (name in here and name in there)]
    wrong = [
        f"{name} {there.get(name, 'not installed')}, here {here.get(name, 'not installed')}"
        for name in sorted(names)
        if there.get(name) != here.get(name)
    ]
    if wrong:
        raise MissingPrerequisite(f"{where} has other versions: {'; '.join(wrong)}", fix=fix, see="versions")
