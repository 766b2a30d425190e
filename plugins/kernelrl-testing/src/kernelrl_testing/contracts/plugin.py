"""The contracts of all components of one plugin, for `kernelrl plugins check`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import SkipTest

import attrs
from packaging.requirements import Requirement

from kernelrl_core.errors import KernelRLError
from kernelrl_core.interfaces.component import Component
from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_core.plugins.known_distributions import distribution_of
from kernelrl_core.plugins.registry import PluginInfo, Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.problems import RecipeError
from kernelrl_core.version import __version__
from kernelrl_testing.contracts import CONTRACTS
from kernelrl_testing.contracts.base import ComponentContract, Result, results
from kernelrl_testing.contracts.breaches import Fault
from kernelrl_testing.contracts.options import read_options

__all__ = ["Checked", "check_component", "plugin_faults"]


@attrs.frozen
class Checked:
    """Result of the contract of one component."""

    faults: tuple[Fault, ...]
    """Requirements that are not fulfilled, each once."""
    untested: tuple[str, ...]
    """Tests that did not run for want of a prerequisite or of an option, with the fix."""
    loads: bool
    """False if the implementation could not be imported for want of a prerequisite."""


def plugin_faults(registry: Registry, plugin: PluginInfo) -> Iterator[Fault]:
    """Faults of a plugin beside those of its components."""
    if plugin.state != "ok":
        yield Fault(f"{plugin.state}: {plugin.error}", plugin.fix or f"kernelrl plugins show {plugin.name}")
        return
    if not plugin.components:
        hooks = "define a hook such as `@hookimpl def kernelrl_rewards()`, which returns a list of Component"
        yield Fault("the plugin has no component", hooks)
    if plugin.dist != "kernelrl" and not _depends_on_core(plugin.dist):
        low, _, _ = __version__.rpartition(".")
        pin = f'dependencies = ["kernelrl>={low},<{_next(low)}"]'
        yield Fault(f"{plugin.dist} does not depend on kernelrl", f"add {pin} to pyproject.toml, and install it again")


def check_component(
    registry: Registry, plugin: PluginInfo, kind: str, component: Component, options: Mapping[str, Any]
) -> Checked:
    """Run the contract of a component's kind.

    Args:
        options: options as a recipe writes them, in addition to `check_options` of the options class.
    """
    name = f"{plugin.name}:{component.name}"
    given, obstacle = _options(registry, plugin, kind, component, options)
    if obstacle:
        contract: ComponentContract = _WithoutOptions(kind, name, registry, obstacle)
    else:
        parts = {"component": name, "options": given, "registry": lambda self: registry}
        contract = type(CONTRACTS[kind].__name__, (CONTRACTS[kind],), parts)()
    with tempfile.TemporaryDirectory(prefix="kernelrl-check-") as folder:
        found = list(_causes(results(contract, Path(folder))))
    faults = [fault for result in found for fault in result.faults]
    untested = [result.skipped for result in found if "; fix: " in result.skipped]
    loads = not any(result.skipped for result in found if result.test == "test_is_found_and_loads")
    faults += _clashes(registry, plugin, kind, component)
    return Checked(tuple(dict.fromkeys(faults)), tuple(dict.fromkeys(untested)), loads)


def _causes(found: Iterable[Result]) -> Iterator[Result]:
    """The results without those that follow from a component which cannot be loaded or made."""
    kept: tuple[str, ...] | None = None
    for result in found:
        if kept is None or result.test in kept:
            yield result
        if result.faults and kept is None:
            kept = _CAUSES.get(result.test)


_LIGHT = ("test_options_import_nothing_heavy", "test_import_is_quick_and_quiet")
_CAUSES: Mapping[str, tuple[str, ...]] = {
    "test_is_found_and_loads": (),
    "test_options_round_trip_and_unknown_ones_are_refused": (*_LIGHT, "test_requires_names_all_imports"),
    "test_declares_what_its_kind_requires": (*_LIGHT, "test_requires_names_all_imports"),
}
"""Test of the contract -> the tests that still say something new where it fails."""


def _options(
    registry: Registry, plugin: PluginInfo, kind: str, component: Component, options: Mapping[str, Any]
) -> tuple[Mapping[str, Any], str]:
    """Options for the check of a component, and the reason, with the fix, why they do not suffice; empty: they do.

    Raises:
        RecipeError: `options` are wrong.
    """
    name = f"{plugin.name}:{component.name}"
    try:
        config = registry.config_class(kind, name)
        given = {**config.check_options, **options}
        if kind != "commands":
            read_options(registry, kind, name, given)
    except RecipeError as error:
        if options:
            raise
        problem = error.problems[0]
        # A wrong plugin, or wrong check_options, is reported by the contract.
        if config.check_options or problem.path.endswith(".use"):
            return given, ""
    except KernelRLError:
        return {}, ""
    else:
        return given, ""
    fields = [field.name for field in attrs.fields(config) if field.init and field.default is attrs.NOTHING]
    wanted = " ".join(f"{component.name}.{field}=VALUE" for field in fields or ("OPTION",))
    reason = f"no value for {', '.join(fields)}" if fields else problem.message
    fix = f"kernelrl plugins check {plugin.name} {wanted}"
    return given, f"the tests of its behaviour need options: {reason}; fix: {fix}"


class _WithoutOptions(ComponentContract):
    """The tests of all kinds; those that need options are skipped."""

    def __init__(self, kind: str, component: str, plugins: Registry, obstacle: str) -> None:
        self.kind, self.component = kind, component  # type: ignore[misc]
        self._plugins, self._obstacle = plugins, obstacle

    def registry(self) -> Registry:
        return self._plugins

    def use(self) -> Use:
        raise SkipTest(self._obstacle)


def _clashes(registry: Registry, plugin: PluginInfo, kind: str, component: Component) -> Iterator[Fault]:
    """Names that another plugin had before: recipes that use them bare stop working."""
    from kernelrl_core.cli.main import COMMANDS

    if distribution_of(kind, component.name) == plugin.dist or plugin.dist == "kernelrl":
        return
    if kind == "commands" and component.name in COMMANDS:
        fix = f"rename it; until then it is called with: kernelrl {plugin.name}:{component.name}"
        yield Fault(f"the name is in use: kernelrl has a command {component.name!r}", fix)
    for other in registry.plugins:
        if other != plugin and any(one.name == component.name for one in other.components.get(kind, ())):
            what = (
                f"the name is in use: plugin {other.name} has a {KINDS_BY_NAME[kind].singular} {component.name!r}, too"
            )
            yield Fault(what, f"rename it; until then recipes must write {plugin.name}:{component.name}")


def _depends_on_core(dist: str) -> bool:
    try:
        return any(Requirement(text).name == "kernelrl" for text in metadata.requires(dist) or ())
    except metadata.PackageNotFoundError:
        return True  # no distribution: nothing declares a dependency


def _next(version: str) -> str:
    head, _, last = version.rpartition(".")
    return f"{head}.{int(last) + 1}"
