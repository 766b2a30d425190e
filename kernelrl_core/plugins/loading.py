"""Find, check and import the installed plugins, and call their hooks, each plugin separately.

pluggy's own loading is all or nothing: one failed import stops all later plugins, one failed hook discards the results
of all, a duplicate name is skipped, and a misspelt hook is ignored silently. Here a failure is recorded for its plugin
and affects no other.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from typing import Any, Literal

import attrs
import pluggy

from kernelrl_core.errors import nearest, suggestion
from kernelrl_core.interfaces.component import Component
from kernelrl_core.interfaces.hooks import GROUP, KINDS, Hooks
from kernelrl_core.plugins.load_errors import SlowImports, explained, say
from kernelrl_core.version import __version__

__all__ = ["PluginInfo", "load_plugins"]

_HOOKS = tuple(f"kernelrl_{kind}" for kind in KINDS)
_FIX_RETURN = "return a list: [Component(name, target, …)]"
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


class _Refused(Exception):
    """A plugin violates a requirement of the loader, at the point `failed_at`."""

    def __init__(self, failed_at: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.failed_at, self.fix = failed_at, fix


def load_plugins(environment: Mapping[str, str] = os.environ) -> tuple[PluginInfo, ...]:
    """Load all installed plugins, sorted by name. A failure is recorded in the `PluginInfo` of its plugin.

    `KERNELRL_DISABLE_PLUGINS=a,b` disables plugins, `KERNELRL_PLUGINS=a,b` disables all others, and
    `KERNELRL_TRACE_PLUGINS=1` writes a line to stderr for every hook call.
    """
    disabled = _names(environment.get("KERNELRL_DISABLE_PLUGINS", ""))
    only = _names(environment.get("KERNELRL_PLUGINS", ""))
    trace = environment.get("KERNELRL_TRACE_PLUGINS", "") not in ("", "0")
    owners: dict[str, _Found] = {}
    plugins = []
    with SlowImports() as slow:
        # `kernelrl-plugin-NAME` has precedence for NAME: a third-party distribution cannot replace a bundled plugin.
        for found in sorted(_installed(), key=lambda f: (f.name, not _named_after(f), f.dist)):
            info = PluginInfo(found.name, found.dist, found.version, "ok")
            owner = owners.setdefault(found.name, found)
            if found.name in disabled:
                info = attrs.evolve(info, state="disabled", error="named in KERNELRL_DISABLE_PLUGINS")
            elif only and found.name not in only:
                info = attrs.evolve(info, state="disabled", error="not named in KERNELRL_PLUGINS")
            elif owner is not found:
                error = f"{owner.dist} and {found.dist} both provide a plugin {found.name!r}"
                fix = f"pip uninstall {found.dist}"
                info = attrs.evolve(info, state="broken", failed_at="name", error=error, fix=fix)
            else:
                with slow.watch(found.name):
                    info = _load(found, info, trace=trace)
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
            name, version = str(dist.metadata["Name"]), dist.version
            if _canonical(name) in seen:
                continue  # shadowed by the same distribution earlier on sys.path
            seen.add(_canonical(name))
            entries = [entry for entry in dist.entry_points if entry.group == GROUP]
            requirements = tuple(dist.requires or ())
        except Exception as error:  # broken metadata of any installed distribution
            label = name or str(getattr(dist, "_path", "unknown"))
            yield _Found(label, label, version, None, problem=error)
            continue
        for entry in entries:
            yield _Found(entry.name, name, version, entry, requirements)


def _load(found: _Found, info: PluginInfo, *, trace: bool) -> PluginInfo:
    phase = "metadata"
    printed = io.StringIO()
    try:
        if found.problem is not None:
            raise found.problem
        assert found.entry is not None
        phase = "version"
        _check_version(found)
        phase = "import"
        if trace:
            say(f"importing plugin {found.name} ({found.entry.value})")
        # Output of a plugin must not mix with the output of a command.
        with contextlib.redirect_stdout(printed):
            module = found.entry.load()
            manager = pluggy.PluginManager(GROUP)
            manager.add_hookspecs(Hooks)
            phase = "hooks"
            _check_hooks(module)
            manager.register(module, name=found.name)
            _check_calls(manager, module)
            components = {}
            for kind in KINDS:
                phase = f"kernelrl_{kind}"
                if offered := _ask(manager, phase, found.name, trace=trace):
                    components[kind] = offered
    # SystemExit: a plugin that calls `sys.exit` during import must not end the command line.
    except (Exception, SystemExit) as error:
        if isinstance(error, _Refused):
            return attrs.evolve(
                info, state="broken", failed_at=error.failed_at, error=_one_line(str(error)), fix=error.fix
            )
        message, fix = explained(error, found.dist, phase)
        trace_text = "".join(traceback.format_exception(error))
        return attrs.evolve(info, state="broken", failed_at=phase, error=message, fix=fix, trace=trace_text)
    finally:
        if line := printed.getvalue().strip().partition("\n")[0]:
            say(f"plugin {found.name} prints while it is imported: {line[:100]!r}; fix: remove the print in the plugin")
    return attrs.evolve(info, components=components)


def _check_version(found: _Found) -> None:
    from packaging.requirements import Requirement

    for text in found.requirements:
        requirement = Requirement(text)
        if _canonical(requirement.name) != "kernelrl" or (requirement.marker and not requirement.marker.evaluate()):
            continue
        failing = [one for one in requirement.specifier if not one.contains(__version__, prereleases=True)]
        if failing:
            # `>=9` needs a newer kernelrl; `<0.1` a newer plugin.
            upgraded = "kernelrl" if failing[0].operator in (">", ">=", "~=") else found.dist
            message = (
                f"{found.dist} {found.version} needs kernelrl{requirement.specifier}; this is kernelrl {__version__}"
            )
            raise _Refused("version", message, f"pip install --upgrade {upgraded}")


def _check_hooks(module: Any) -> None:
    """Hooks that are not marked, or misspelt: pluggy ignores the former, and the latter if they are not marked."""
    for name, value in vars(module).items() if inspect.ismodule(module) else ():
        if not inspect.isfunction(value) or hasattr(value, f"{GROUP}_impl"):
            continue
        if name in _HOOKS:
            message = f"{name} is not marked with @hookimpl, so the core would never call it"
            raise _Refused("hooks", message, f"write @hookimpl above {name}")
        prefix, _, kind = name.partition("_")
        if prefix == GROUP and value.__module__ == module.__name__ and nearest(kind, KINDS):
            raise _unknown_hook(name)


def _check_calls(manager: pluggy.PluginManager, module: Any) -> None:
    for caller in manager.get_hookcallers(module) or ():
        if caller.name not in _HOOKS:
            raise _unknown_hook(caller.name)


def _unknown_hook(name: str) -> _Refused:
    message = f"{name} is not a hook of kernelrl {__version__}; {suggestion(name, _HOOKS)}"
    return _Refused("hooks", message, f"rename it to {nearest(name, _HOOKS) or 'one of these'}")


def _ask(manager: pluggy.PluginManager, hook: str, plugin: str, *, trace: bool) -> tuple[Component, ...]:
    offered: list[Component] = []
    for implementation in getattr(manager.hook, hook).get_hookimpls():
        began = time.perf_counter()
        returned = implementation.function()
        if isinstance(returned, str | bytes | Component) or not isinstance(returned, Iterable):
            raise _Refused(hook, f"{hook} returned {_shown(returned)}, not a list of Component", _FIX_RETURN)
        # Exhaust the iterable first: a generator that fails must not leave some of its components.
        offered.extend(returned)
        if trace:
            seconds = time.perf_counter() - began
            say(f"{plugin}.{hook} {seconds * 1e3:.2f} ms, {len(offered)} components")
    seen = set()
    for component in offered:
        if not isinstance(component, Component):
            raise _Refused(hook, f"{hook} returned {type(component).__name__}, not a Component", _FIX_RETURN)
        if not isinstance(component.name, str) or not component.name or ":" in component.name:
            message = f"{hook}: {component.name!r} is not a valid component name (text without ':')"
            raise _Refused(hook, message, "name it like an option, such as 'brevity'")
        if component.name in seen:
            message = f"{hook} returns two components named {component.name!r}"
            raise _Refused(hook, message, "give each component of a kind its own name")
        seen.add(component.name)
        for target in filter(None, (component.target or "-", component.config)):
            if not (isinstance(target, str) and _TARGET.fullmatch(target)):
                message = f"{hook}: {component.name}: {target!r} is not of the form `module:attribute`"
                raise _Refused(hook, message, "write, for example, 'my_plugin.brevity:Brevity'")
    return tuple(offered)


def _shown(returned: object) -> str:
    return "None" if returned is None else f"one {type(returned).__name__}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
