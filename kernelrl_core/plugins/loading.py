"""Find, check and import the installed plugins, and call their hooks, each plugin separately.

pluggy's own loading is all or nothing: one failed import stops all later plugins, one failed hook discards the results
of all, a duplicate name is skipped, and a misspelt hook is ignored silently. Here a failure is recorded for its plugin
and affects no other.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any, Literal

import attrs
import pluggy

from kernelrl_core.errors import suggestion
from kernelrl_core.interfaces.component import Component
from kernelrl_core.interfaces.hooks import GROUP, KINDS, Hooks
from kernelrl_core.version import __version__

__all__ = ["PluginInfo", "load_plugins"]

_HOOKS = tuple(f"kernelrl_{kind}" for kind in KINDS)
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

    def __init__(self, failed_at: str, message: str) -> None:
        super().__init__(message)
        self.failed_at = failed_at


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
    # `kernelrl-plugin-NAME` has precedence for NAME: a third-party distribution cannot replace a bundled plugin.
    for found in sorted(_installed(), key=lambda f: (f.name, not _named_after(f), f.dist)):
        info = PluginInfo(found.name, found.dist, found.version, "ok")
        owner = owners.setdefault(found.name, found)
        if found.name in disabled:
            info = attrs.evolve(info, state="disabled", error="named in KERNELRL_DISABLE_PLUGINS")
        elif only and found.name not in only:
            info = attrs.evolve(info, state="disabled", error="not named in KERNELRL_PLUGINS")
        elif owner is not found:
            error = f"{owner.dist} and {found.dist} both provide a plugin {found.name!r}; uninstall one of them"
            info = attrs.evolve(info, state="broken", failed_at="name", error=error)
        else:
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
    try:
        if found.problem is not None:
            raise found.problem
        assert found.entry is not None
        phase = "version"
        _check_version(found)
        phase = "import"
        # Output of a plugin must not mix with the output of a command.
        with contextlib.redirect_stdout(sys.stderr):
            module = found.entry.load()
            manager = pluggy.PluginManager(GROUP)
            manager.add_hookspecs(Hooks)
            phase = "hooks"
            manager.register(module, name=found.name)
            _check_hooks(manager, module)
            components = {}
            for kind in KINDS:
                phase = f"kernelrl_{kind}"
                if offered := _ask(manager, phase, found.name, trace=trace):
                    components[kind] = offered
    # SystemExit: a plugin that calls `sys.exit` during import must not end the command line.
    except (Exception, SystemExit) as error:
        refused = isinstance(error, _Refused)
        return attrs.evolve(
            info,
            state="broken",
            failed_at=error.failed_at if isinstance(error, _Refused) else phase,
            error=_one_line(str(error)) if refused else _explained(error),
            trace="" if refused else "".join(traceback.format_exception(error)),
        )
    return attrs.evolve(info, components=components)


def _check_version(found: _Found) -> None:
    from packaging.requirements import Requirement

    for text in found.requirements:
        requirement = Requirement(text)
        if _canonical(requirement.name) != "kernelrl" or (requirement.marker and not requirement.marker.evaluate()):
            continue
        if not requirement.specifier.contains(__version__, prereleases=True):
            wanted = f"kernelrl{requirement.specifier}"
            raise _Refused("version", f"{found.dist} {found.version} needs {wanted}; this is kernelrl {__version__}")


def _check_hooks(manager: pluggy.PluginManager, module: Any) -> None:
    for caller in manager.get_hookcallers(module) or ():
        if caller.name not in _HOOKS:
            hint = suggestion(caller.name, _HOOKS)
            raise _Refused("hooks", f"{caller.name} is not a hook of kernelrl {__version__}; {hint}")
    for name, value in vars(module).items() if inspect.ismodule(module) else ():
        if name in _HOOKS and inspect.isfunction(value) and not hasattr(value, f"{GROUP}_impl"):
            raise _Refused("hooks", f"{name} is not marked with @hookimpl, so the core would never call it")


def _ask(manager: pluggy.PluginManager, hook: str, plugin: str, *, trace: bool) -> tuple[Component, ...]:
    offered: list[Component] = []
    for implementation in getattr(manager.hook, hook).get_hookimpls():
        began = time.perf_counter()
        # Exhaust the iterable first: a generator that fails must not leave some of its components.
        offered.extend(implementation.function())
        if trace:
            seconds = time.perf_counter() - began
            print(f"kernelrl: {plugin}.{hook} {seconds * 1e3:.2f} ms, {len(offered)} components", file=sys.stderr)
    seen = set()
    for component in offered:
        if not isinstance(component, Component):
            raise _Refused(hook, f"{hook} returned {type(component).__name__}, not a Component")
        if not isinstance(component.name, str) or not component.name or ":" in component.name:
            raise _Refused(hook, f"{hook}: {component.name!r} is not a valid component name (text without ':')")
        if component.name in seen:
            raise _Refused(hook, f"{hook} returns two components named {component.name!r}")
        seen.add(component.name)
        for target in filter(None, (component.target or "-", component.config)):
            if not _TARGET.fullmatch(target):
                raise _Refused(hook, f"{hook}: {component.name}: {target!r} is not of the form `module:attribute`")
    return tuple(offered)


def _explained(error: BaseException) -> str:
    message = _one_line(f"{type(error).__name__}: {_text(error)}")
    from kernelrl_core.plugins.moved import new_import

    instead = new_import(error)
    return f"{message}; write: {instead}" if instead else message


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # `__str__` of a plugin's exception is plugin code, too
        return "(the text of the exception is not available)"


def _one_line(text: str) -> str:
    return " ".join(text.split())
