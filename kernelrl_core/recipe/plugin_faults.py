"""Faults of a component that show without a run. `kernelrl plugins check` and the contract tests report them."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from kernelrl_core.errors import UsageError
from kernelrl_core.interfaces.component import Component
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.blocks import blocks
from kernelrl_core.recipe.declarations import declaration_faults
from kernelrl_core.recipe.problems import RecipeError
from kernelrl_core.recipe.structure import component_block

__all__ = [
    "HEAVY_MODULES",
    "component_faults",
    "import_faults",
    "option_faults",
    "read_options",
]

HEAVY_MODULES = frozenset(
    (
        "cupy",
        "datasets",
        "jax",
        "modal",
        "numpy",
        "openai",
        "pandas",
        "ray",
        "scipy",
        "tensorflow",
        "tinker",
        "torch",
        "transformers",
        "triton",
        "wandb",
    )
)
"""Modules that neither a plugin's package nor a config class may import, beside those that a component requires."""
_UNKNOWN_KEY = "no_such_option"
_IMPORT = """
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name)
print("heavy:", *sorted({heavy!r} & sys.modules.keys()))
"""


def read_options(registry: Registry, kind: str, name: str, options: Mapping[str, Any]) -> Use:
    """The options as a recipe reads them.

    Raises:
        RecipeError: mistakes in the options.
    """
    key = next(key for key, block in blocks().items() if block.kind == kind)
    return component_block(key, {**options, "use": name}, registry)


def component_faults(registry: Registry, kind: str, name: str) -> Iterator[str]:
    """All faults of a component with its default options.

    Where an option is required, only methods and imports are checked. Public methods that the kind does not define come
    first; where there is one, nothing else is checked.

    Raises:
        MissingPrerequisite: something that the component needs is not installed.
        KernelRLError: the component cannot be loaded.
    """
    unknown = registry.unknown_methods(kind, name)
    yield from unknown
    if unknown or kind == "commands":
        return
    yield from import_faults(registry.find(kind, name))
    try:
        use = read_options(registry, kind, name, {})
    except RecipeError:
        return
    yield from option_faults(registry, kind, name, {})
    yield from declaration_faults(kind, registry.make(kind, use), use.options)  # type: ignore[call-overload]


def option_faults(registry: Registry, kind: str, name: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Faults in reading and writing the options of a component. `options` must be valid."""
    try:
        use = read_options(registry, kind, name, options)
        again = read_options(registry, kind, name, json.loads(json.dumps(use.raw)))
    except RecipeError as error:
        yield from (problem.message for problem in error.problems)
        return
    if again.options != use.options:
        yield f"options change when they are saved and read again: {use.options} becomes {again.options}"
    try:
        read_options(registry, kind, name, {**options, _UNKNOWN_KEY: 1})
    except RecipeError:
        return
    yield f"the unknown option {_UNKNOWN_KEY!r} is accepted"


def import_faults(component: Component) -> Iterator[str]:
    """Heavy modules that the plugin's package or the config class imports, found in a fresh process."""
    package = component.target.partition(":")[0].partition(".")[0]
    config = component.config.partition(":")[0]
    required = frozenset(module.partition(".")[0] for module in component.requires.modules)
    for module in _heavy_imports(package, config, HEAVY_MODULES | required, tuple(sys.path)):
        where = " or ".join(dict.fromkeys(filter(None, (package, config))))
        yield f"importing {where} loads {module}; import it where it is used"


@functools.cache
def _heavy_imports(package: str, config: str, heavy: frozenset[str], path: tuple[str, ...]) -> tuple[str, ...]:
    code = _IMPORT.format(modules=[name for name in (package, config) if name], heavy=set(heavy))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise UsageError(f"importing {package} and {config or 'nothing else'} fails: {done.stderr.strip()}")
    return tuple(done.stdout.rpartition("heavy:")[2].split())
