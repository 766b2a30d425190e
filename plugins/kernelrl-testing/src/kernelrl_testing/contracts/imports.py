"""What the modules of a component import, print and take, without its implementation being made."""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

import attrs
from packaging.requirements import Requirement

from kernelrl_core.interfaces.component import Component
from kernelrl_core.interfaces.requirements import Requires
from kernelrl_testing.contracts.breaches import Fault

__all__ = ["HEAVY_MODULES", "Imported", "heavy_imports", "import_faults", "in_fresh_process", "undeclared_imports"]

HEAVY_MODULES = frozenset(
    (
        *("cupy", "datasets", "faiss", "gradio", "jax", "modal", "numpy", "openai", "pandas", "peft", "pyarrow", "ray"),
        *("scipy", "sentence_transformers", "tensorboard", "tensorflow", "tinker", "tinker_cookbook", "tokenizers"),
        *("torch", "trackio", "transformers", "triton", "verifiers", "wandb"),
    )
)
"""Modules that neither a plugin's package nor a config class may import, beside those that a component requires."""
_QUICK_CPU_S = 2.0
"""For a package and the module of its options, which take milliseconds."""
_LIMIT_S = 120.0
_PROBE = """
import importlib, json, sys, time
report, names, heavy, after = json.loads(sys.argv[1])
import attrs, kernelrl_core.api
start = time.process_time()
for name in names:
    importlib.import_module(name)
cpu_s = time.process_time() - start
exec(after)
found = {"cpu_s": cpu_s, "heavy": sorted(set(heavy) & sys.modules.keys())}
with open(report, "w") as stream:
    json.dump(found, stream)
"""


@attrs.frozen
class Imported:
    """Result of importing modules in a fresh process."""

    cpu_s: float = 0.0
    """CPU time of the imports, which a busy machine does not change."""
    heavy: tuple[str, ...] = ()
    """Heavy modules that are loaded afterwards."""
    output: str = ""
    """Text on standard output and standard error."""
    failure: str = ""
    """Reason why the process made no report; empty if it did."""


@functools.cache
def in_fresh_process(names: tuple[str, ...], heavy: frozenset[str], path: tuple[str, ...], after: str = "") -> Imported:
    """Import modules in a fresh process.

    Args:
        path: `sys.path` of the process.
        after: Python source that is executed then, before the loaded modules are listed.
    """
    # Variables such as PYTHONDEVMODE make Python itself print.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = os.pathsep.join(path)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        arguments = json.dumps([str(report), names, sorted(heavy), after])
        try:
            done = subprocess.run(
                # Without bytecode: the check writes nothing beside the plugin.
                [sys.executable, "-B", "-c", _PROBE, arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=environment,
                timeout=_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return Imported(failure=f"takes more than {_LIMIT_S:g} s")
        if not report.exists():
            ends = done.returncode == 0 or "Traceback" not in done.stderr
            reason = f"ends the process with exit code {done.returncode}" if ends else _last_line(done.stderr)
            return Imported(failure=reason if ends else f"fails: {reason}")
        found = json.loads(report.read_text(encoding="utf-8"))
    return Imported(found["cpu_s"], tuple(found["heavy"]), f"{done.stdout}{done.stderr}".strip())


def _last_line(text: str) -> str:
    return next(iter(text.strip().splitlines()[::-1]), "no message")


def light_modules(component: Component) -> tuple[str, ...]:
    """The package of a component and the module of its options: the parts that are imported to list and validate."""
    package = component.target.partition(":")[0].partition(".")[0]
    return tuple(dict.fromkeys(filter(None, (package, component.config.partition(":")[0]))))


def imported(component: Component) -> Imported:
    """Result of importing the light modules of a component."""
    required = frozenset(module.partition(".")[0] for module in component.requires.modules)
    return in_fresh_process(light_modules(component), HEAVY_MODULES | required, tuple(sys.path))


def heavy_imports(component: Component) -> Iterator[Fault]:
    """Heavy modules that a component's package or the module of its options imports."""
    found, where = imported(component), " or ".join(light_modules(component))
    for module in found.heavy:
        yield Fault(f"importing {where} loads {module}", f"import {module} where it is used, in the implementation")


def import_faults(component: Component) -> Iterator[Fault]:
    """An import of the light modules of a component that fails, exits, prints, or takes much CPU time."""
    found, where = imported(component), " and ".join(light_modules(component))
    if found.failure:
        yield Fault(f"importing {where} {found.failure}", "define only hooks and options there, and move other code")
        return
    if found.output:
        line = found.output.splitlines()[0][:100]
        yield Fault(f"importing {where} prints {line!r}", "remove the output, or log it with the module logging")
    if found.cpu_s > _QUICK_CPU_S:
        fix = "move slow imports and computation into the implementation, where they are used"
        yield Fault(f"importing {where} takes {found.cpu_s:.1f} s of CPU time", fix)


# --- declared prerequisites -----------------------------------------------------------------------------------------


def undeclared_imports(component: Component, dist: str, *also: Requires) -> Iterator[Fault]:
    """Modules that the implementation imports when it is loaded, and that neither `requires` nor the dependencies of
    its distribution name. Imports within functions and `try` are not considered.

    Args:
        dist: distribution of the plugin.
        also: further prerequisites, such as those of the options.
    """
    module, package = component.target.partition(":")[0], component.target.partition(".")[0].partition(":")[0]
    declared = {name.partition(".")[0] for requires in (component.requires, *also) for name in requires.modules}
    known = {*sys.stdlib_module_names, package, "kernelrl_core", *declared}
    third_party = {name: line for name, line in _imports_of(module, package).items() if name not in known}
    depended = _dependencies(dist) | _dependencies("kernelrl")
    for name in sorted(third_party.keys() - {text.replace("-", "_") for text in depended}):
        if not _providers(name) & depended:
            yield Fault(
                f"{third_party[name]} imports {name}, which neither Component.requires nor a dependency of "
                f"{dist} names",
                f'add requires=Requires(modules=("{name}",)) to the Component, or {name} to the dependencies',
            )


def _imports_of(module: str, package: str) -> dict[str, str]:
    """Top-level name of each module that is imported when `module` is, by it or by modules of its package -> place."""
    found: dict[str, str] = {}
    waiting, seen = [module], {module}
    while waiting:
        current = waiting.pop()
        spec = _spec(current)
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            continue
        is_package = bool(spec.submodule_search_locations)
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        for name, line in _imported_names(tree.body, current if is_package else current.rpartition(".")[0]):
            top = name.partition(".")[0]
            if top != package:
                found.setdefault(top, f"{Path(spec.origin).parent.name}/{Path(spec.origin).name}:{line}")
            elif name not in seen:
                seen.add(name)
                waiting.append(name)
    return found


def _spec(module: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None


def _imported_names(body: Iterable[ast.stmt], package: str) -> Iterator[tuple[str, int]]:
    """Name and line of the modules that statements import, also those of `if`, except `if TYPE_CHECKING`."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            name = ".".join(filter(None, (base, node.module)))
            yield name, node.lineno
            yield from ((f"{name}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.If):
            if "TYPE_CHECKING" not in ast.unparse(node.test):
                yield from _imported_names(node.body, package)
            yield from _imported_names(node.orelse, package)
        elif isinstance(node, ast.ClassDef | ast.With):
            yield from _imported_names(node.body, package)


@functools.cache
def _dependencies(dist: str) -> frozenset[str]:
    """Distributions on which a distribution depends, without those of extras."""
    try:
        requirements = [Requirement(text) for text in metadata.requires(dist) or ()]
    except metadata.PackageNotFoundError:
        return frozenset()
    return frozenset(
        _canonical(one.name) for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})
    )


def _providers(module: str) -> set[str]:
    """Distributions that contain a module."""
    return {_canonical(dist) for dist in _distributions_of_modules().get(module, ())}


@functools.cache
def _distributions_of_modules() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def _canonical(dist: str) -> str:
    return re.sub(r"[-_.]+", "-", dist).lower()
