"""Checks of this machine for `kernelrl doctor` and `kernelrl env`, with the fix of each missing part.

A row has `check`, `state` (`ok`, or why it is not), `detail`, and `fix`, which is empty where nothing is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kernelrl_core.errors import KernelRLError
from kernelrl_core.interfaces.component import Component
from kernelrl_core.interfaces.config import ComponentConfig
from kernelrl_core.interfaces.hooks import KINDS
from kernelrl_core.planning.load import load_recipe
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.evaluation_spec import spec_of
from kernelrl_core.recipe.prerequisites import missing_prerequisites, recipe_uses
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.storage import cache_directory
from kernelrl_devices.gpus import gpu_vendors

__all__ = ["component_facts", "machine_checks", "recipe_checks"]


def recipe_checks(name: str, registry: Registry) -> list[dict[str, Any]]:
    """The prerequisites of a recipe. If none is missing, its evaluator is started and closed.

    Raises:
        UsageError, MissingPrerequisite: the recipe is invalid, or a plugin of it cannot be loaded.
    """
    return list(_recipe_checks(name, registry))


def machine_checks(registry: Registry) -> list[dict[str, Any]]:
    """Python, plugins, GPU, cache, and the prerequisites of all components with their default options."""
    return list(_machine_checks(registry))


def _row(check: str, good: bool, detail: str, fix: str = "", *, lacking: str = "missing") -> dict[str, Any]:
    return {"check": check, "state": "ok" if good else lacking, "detail": detail, "fix": "" if good else fix}


def _recipe_checks(name: str, registry: Registry) -> Iterator[dict[str, Any]]:
    loaded = load_recipe(name, registry=registry)
    missing = missing_prerequisites(recipe_uses(loaded.recipe), spec_of(loaded.recipe), registry)
    yield _row("recipe", True, f"{loaded.name} is valid")
    for what, fix in missing.items():
        yield _row(what, False, "required by the recipe", fix)
    if not missing:
        yield _row("prerequisites", True, "all prerequisites of the recipe are available")
        yield _evaluator_check(loaded.recipe, registry)
    for kind, use in recipe_uses(loaded.recipe):
        yield from _facts(f"{registry.plugin_of(kind, use.use).name}:{use.use.rpartition(':')[2]}", use.options)


def _evaluator_check(recipe: Recipe, registry: Registry) -> dict[str, Any]:
    """Whether the evaluator starts, with its GPU model."""

    async def started() -> str:
        evaluator = registry.make("evaluators", recipe.evaluator)
        try:
            await evaluator.start()
            return evaluator.gpu_model()
        finally:
            await evaluator.aclose()

    check = f"evaluator {recipe.evaluator.use}"
    try:
        model = asyncio.run(started())
    except KernelRLError as error:
        return _row(check, False, error.message, error.fix)
    return _row(check, True, f"starts; {model or 'no GPU'}")


def _default_modules(registry: Registry) -> list[str]:
    """The Python modules that the default evaluator and backend need."""
    names = {kind: registry.default(kind) for kind in ("evaluators", "backends")}
    found: list[str] = []
    for kind, name in names.items():
        with contextlib.suppress(KernelRLError):
            found += registry.find(kind, name).requires.modules
    return list(dict.fromkeys(found))


def _machine_checks(registry: Registry) -> Iterator[dict[str, Any]]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield _row("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")
    broken = [plugin for plugin in registry.plugins if plugin.state == "broken"]
    good = [plugin for plugin in registry.plugins if plugin.state == "ok"]
    yield _row("plugins", len(good) > 1, f"{len(good)} loaded", "pip install 'kernelrl[all]'")
    for plugin in broken:
        yield _row(
            f"plugin {plugin.name}", False, plugin.error, f"kernelrl plugins show {plugin.name}", lacking="broken"
        )
    for module in _default_modules(registry):
        found = importlib.util.find_spec(module) is not None
        yield _row(module, found, "installed" if found else "", f"pip install {module}")
    for kind in KINDS:
        for what, component, options in _components(registry, [kind]):
            for missing in registry.missing(component, options):
                yield _row(what, False, f"requires {missing.what}", missing.fix)
            yield from _facts(what, options)
        if kind == "evaluators" and not registry.components(kind):
            yield _row(kind, False, "none is installed", "pip install 'kernelrl[all]'", lacking="none")
    vendors = gpu_vendors()
    found_gpus = ", ".join(sorted(vendors)) or "no GPU found; the quickstart needs none"
    yield _row("gpu", bool(vendors), found_gpus, lacking="none")
    cache = cache_directory()
    kept = f"{cache}, {_gigabytes(cache):.1f} GB; may be deleted while no kernelrl process is running"
    yield _row(
        "cache",
        _writable(cache),
        kept if cache.exists() else str(cache),
        "set KERNELRL_CACHE_DIR to a writable directory",
    )


def component_facts(registry: Registry) -> Iterator[dict[str, Any]]:
    """Properties of this machine that the components of all plugins report, with their default options."""
    for what, _, options in _components(registry):
        yield from _facts(what, options)


def _components(
    registry: Registry, kinds: Iterable[str] | None = None
) -> Iterator[tuple[str, Component, ComponentConfig | None]]:
    """Name, declaration and default options of each component."""
    for kind in KINDS if kinds is None else kinds:
        for component in registry.components(kind):
            plugin = registry.plugin_of(kind, registry.label(kind, component)).name
            yield f"{plugin}:{component.name}", component, _default_options(registry, kind, component)


def _facts(check: str, options: ComponentConfig | None) -> Iterator[dict[str, Any]]:
    for fact in options.found_here() if options is not None else ():
        yield _row(check, fact.state == "ok", f"{fact.label}: {fact.detail}", fact.fix, lacking=fact.state)


def _default_options(registry: Registry, kind: str, component: Component) -> ComponentConfig | None:
    """The component's options at their defaults; None if an option has no default."""
    try:
        return registry.config_class(kind, registry.label(kind, component))()
    except Exception:  # plugin code; reported when a recipe uses the component
        return None


def _writable(path: os.PathLike[str]) -> bool:
    folder = os.path.abspath(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return os.access(folder, os.W_OK)


def _gigabytes(folder: Path) -> float:
    """Disk space of the files below a folder, in GB."""
    taken = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                taken += os.lstat(os.path.join(directory, name)).st_blocks * 512
    return taken / 1e9
