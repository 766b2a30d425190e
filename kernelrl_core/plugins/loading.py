"""Find, import and register the installed plugins.

All plugins share one pluggy manager. Its own loading of entry points is all or nothing: one failed import stops all
later plugins, and one failed hook discards the results of all. Here the entry points are loaded one by one. A failure
is recorded for its plugin, which leaves the manager again.
"""

from __future__ import annotations

import io
import os
import re
import time
import traceback
from collections.abc import Hashable, Iterable, Iterator, Mapping
from importlib import metadata
from types import FunctionType
from typing import Any, Literal

import attrs
import pluggy

from kernelrl_core.errors import nearest, suggestion
from kernelrl_core.interfaces.component import Component
from kernelrl_core.interfaces.hooks import GROUP, KINDS, Hooks
from kernelrl_core.plugins.load_errors import fix_of_plugin, one_line
from kernelrl_core.plugins.output import SlowImports, output_to, say
from kernelrl_core.version import __version__

__all__ = ["PluginInfo", "load_plugins"]

_HOOKS = tuple(f"kernelrl_{kind}" for kind in KINDS)
_FIX_RETURN = "return a list: [Component(name, target, …)]"
_REQUIRES_CORE = re.compile(r"\s*kernelrl(?![\w.-])", re.IGNORECASE)
"""Start of a requirement of the core. To parse all requirements of all distributions would take longer than to import
their plugins."""
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@attrs.frozen
class PluginInfo:
    """A plugin of this environment and its state."""

    name: str
    """Name of its entry point."""
    dist: str
    """Distribution that provides it."""
    version: str
    """Version of that distribution."""
    state: Literal["ok", "broken", "disabled"]
    """A broken or disabled plugin has no components."""
    error: str = ""
    """Reason for the state broken or disabled, in one line."""
    fix: str = ""
    """Command or change that corrects it; empty: the traceback shows the place."""
    failed_at: str = ""
    """Point of failure: `metadata`, `name`, `version`, `import`, `hooks`, or the name of a hook."""
    trace: str = ""
    """Traceback of the error, if there is one."""
    components: Mapping[str, tuple[Component, ...]] = attrs.field(factory=dict)
    """Kind -> components of the plugin, in the order in which its hook returns them."""


@attrs.frozen
class _Found:
    """An entry point before its import."""

    name: str
    dist: str
    version: str
    entry: metadata.EntryPoint | None
    requirements: tuple[str, ...] = ()
    problem: BaseException | None = None

    def broken(self, failed_at: str, error: str, fix: str, trace: str = "") -> PluginInfo:
        return PluginInfo(self.name, self.dist, self.version, "broken", one_line(error), fix, failed_at, trace)


class _Refused(Exception):
    """A plugin violates a requirement of the loader."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


def load_plugins(environment: Mapping[str, str] = os.environ) -> tuple[PluginInfo, ...]:
    """Load all installed plugins, sorted by name. A failure is recorded in the `PluginInfo` of its plugin.

    `KERNELRL_DISABLE_PLUGINS=a,b` disables plugins, `KERNELRL_PLUGINS=a,b` disables all others, and
    `KERNELRL_TRACE_PLUGINS=1` writes a line to stderr for every hook call.
    """
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(Hooks)
    for name in _names(environment.get("KERNELRL_DISABLE_PLUGINS", "")):
        manager.set_blocked(name)
    only = _names(environment.get("KERNELRL_PLUGINS", ""))
    trace = environment.get("KERNELRL_TRACE_PLUGINS", "") not in ("", "0")
    owners: dict[str, _Found] = {}
    plugins = []
    with SlowImports() as slow:
        # `kernelrl-plugin-NAME` has precedence for NAME: a third-party distribution cannot replace a bundled plugin.
        for found in sorted(_installed(), key=lambda f: (f.name, not _named_after(f), f.dist)):
            owner = owners.setdefault(found.name, found)
            info = PluginInfo(found.name, found.dist, found.version, "ok")
            if manager.is_blocked(found.name):
                info = attrs.evolve(info, state="disabled", error="named in KERNELRL_DISABLE_PLUGINS")
            elif only and found.name not in only:
                info = attrs.evolve(info, state="disabled", error="not named in KERNELRL_PLUGINS")
            elif owner is not found:
                error = f"{owner.dist} and {found.dist} both provide a plugin {found.name!r}"
                info = found.broken("name", error, f"pip uninstall {found.dist}")
            else:
                info = _load(manager, found, info, slow, trace=trace)
            plugins.append(info)
    return tuple(plugins)


def _names(text: str) -> frozenset[str]:
    return frozenset(name for part in text.split(",") if (name := part.strip()))


def _named_after(found: _Found) -> bool:
    own = "kernelrl" if found.name == "core" else f"kernelrl-plugin-{found.name}"
    return _canonical(found.dist) == own


def _canonical(dist: str) -> str:
    return re.sub(r"[-_.]+", "-", dist).lower()


def _installed() -> Iterator[_Found]:
    seen = set()
    for dist in metadata.distributions():
        # One distribution with unreadable metadata must not hide the others.
        name = version = ""
        try:
            text = dist.read_text("entry_points.txt") or ""
            if f"[{GROUP}]" not in text:
                continue
            # Each access to `metadata`, `version` or `requires` of a distribution reads and parses its file again.
            fields = dist.metadata
            name, version = str(fields["Name"]), str(fields["Version"])
            if _canonical(name) in seen:
                continue  # shadowed by the same distribution earlier on sys.path
            seen.add(_canonical(name))
            entries = [entry for entry in dist.entry_points if entry.group == GROUP]
            # An egg has its requirements in a file of their own, which `requires` reads.
            requirements = tuple(fields.get_all("Requires-Dist") or dist.requires or ())
        except Exception as error:  # broken metadata of any installed distribution
            label = name or str(getattr(dist, "_path", "unknown"))
            yield _Found(label, label, version, None, problem=error)
            continue
        for entry in entries:
            yield _Found(entry.name, name, version, entry, requirements)


def _load(
    manager: pluggy.PluginManager, found: _Found, info: PluginInfo, slow: SlowImports, *, trace: bool
) -> PluginInfo:
    """Import and register one plugin, and call its hooks."""
    stage = "metadata"
    module: Any = None
    printed = io.StringIO()
    try:
        if found.problem is not None:
            raise found.problem
        assert found.entry is not None
        stage = "version"
        _check_version(found)
        stage = "import"
        if trace:
            say(f"importing plugin {found.name} ({found.entry.value})")
        # Output of a plugin must not mix with the output of a command.
        with output_to(printed), slow.of_plugin(found.name):
            module = found.entry.load()
            stage = "hooks"
            _register(manager, found.name, module)
            marked = {caller.name for caller in manager.get_hookcallers(module) or ()}
            components = {}
            for kind in KINDS:
                stage = f"kernelrl_{kind}"
                if stage in marked and (offered := _offered(manager, module, found.name, stage, trace=trace)):
                    components[kind] = offered
    # SystemExit: a plugin that calls `sys.exit` during import must not end the command line.
    except (Exception, SystemExit) as error:
        if manager.has_plugin(found.name):
            manager.unregister(name=found.name)
        if isinstance(error, _Refused):
            return found.broken(stage, str(error), error.fix)
        value = found.entry.value if found.entry is not None else ""
        message, fix = fix_of_plugin(error, stage, found.dist, value, found.requirements)
        return found.broken(stage, message, fix, "".join(traceback.format_exception(error)))
    finally:
        if line := printed.getvalue().strip().partition("\n")[0]:
            say(f"plugin {found.name} prints while it is imported: {line[:100]!r}; fix: remove the print in the plugin")
    return attrs.evolve(info, components=components)


def _check_version(found: _Found) -> None:
    from packaging.requirements import Requirement

    for text in filter(_REQUIRES_CORE.match, found.requirements):
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate():
            continue
        failing = [one for one in requirement.specifier if not one.contains(__version__, prereleases=True)]
        if failing:
            # `>=9` needs a newer kernelrl; `<0.1` a newer plugin.
            upgraded = "kernelrl" if failing[0].operator in (">", ">=", "~=") else found.dist
            message = (
                f"{found.dist} {found.version} needs kernelrl{requirement.specifier}; this is kernelrl {__version__}"
            )
            raise _Refused(message, f"pip install --upgrade {upgraded}")


def _register(manager: pluggy.PluginManager, name: str, module: Any) -> None:
    """Register a plugin. pluggy ignores hooks that are not marked; a misspelt name is refused, marked or not."""
    if not isinstance(module, Hashable):
        raise _Refused(f"the entry point names a {type(module).__name__}, not a module", "name the module of the hooks")
    for attribute, value in vars(module).items() if hasattr(module, "__dict__") else ():
        if not isinstance(value, FunctionType) or hasattr(value, f"{GROUP}_impl"):
            continue
        if attribute in _HOOKS:
            message = f"{attribute} is not marked with @hookimpl, so the core would never call it"
            raise _Refused(message, f"write @hookimpl above {attribute}")
        prefix, _, kind = attribute.partition("_")
        if prefix == GROUP and value.__module__ == getattr(module, "__name__", "") and nearest(kind, KINDS):
            raise _unknown_hook(attribute)
    manager.register(module, name=name)
    for caller in manager.get_hookcallers(module) or ():
        if not caller.has_spec():
            raise _unknown_hook(caller.name)


def _unknown_hook(name: str) -> _Refused:
    message = f"{name} is not a hook of kernelrl {__version__}; {suggestion(name, _HOOKS)}"
    return _Refused(message, f"rename it to {nearest(name, _HOOKS) or 'one of these'}")


def _offered(
    manager: pluggy.PluginManager, module: Any, plugin: str, hook: str, *, trace: bool
) -> tuple[Component, ...]:
    """The components that a plugin returns from a hook that it implements."""
    others = [other for _, other in manager.list_name_plugin() if other is not None and other is not module]
    began = time.perf_counter()
    results = manager.subset_hook_caller(hook, others)()
    # pluggy drops a result of None.
    returned = results[0] if results else None
    if isinstance(returned, str | bytes | Component) or not isinstance(returned, Iterable):
        shown = "None" if returned is None else f"one {type(returned).__name__}"
        raise _Refused(f"{hook} returned {shown}, not a list of Component", _FIX_RETURN)
    # Exhaust the iterable first: a generator that fails must not leave some of its components.
    offered = tuple(returned)
    if trace:
        duration_ms = (time.perf_counter() - began) * 1e3
        say(f"{plugin}.{hook} {duration_ms:.2f} ms, {len(offered)} components")
    seen: set[str] = set()
    for component in offered:
        _check_component(hook, component)
        if component.name in seen:
            message = f"{hook} returns two components named {component.name!r}"
            raise _Refused(message, "give each component of a kind its own name")
        seen.add(component.name)
    return offered


def _check_component(hook: str, component: Any) -> None:
    if not isinstance(component, Component):
        raise _Refused(f"{hook} returned {type(component).__name__}, not a Component", _FIX_RETURN)
    if not isinstance(component.name, str) or not component.name or ":" in component.name:
        message = f"{hook}: {component.name!r} is not a valid component name (text without ':')"
        raise _Refused(message, "name it like an option, such as 'brevity'")
    for target in filter(None, (component.target or "-", component.config)):
        if not (isinstance(target, str) and _TARGET.fullmatch(target)):
            message = f"{hook}: {component.name}: {target!r} is not of the form `module:attribute`"
            raise _Refused(message, "write, for example, 'my_plugin.brevity:Brevity'")
