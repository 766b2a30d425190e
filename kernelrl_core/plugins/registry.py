"""Components of the installed plugins, by kind and name.

registry().find("rewards", "speedup")      # a Component; its implementation is not imported
registry().make("rewards", use)            # the implementation, constructed with its options
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import attrs

from kernelrl_core.errors import KernelRLError, LookupFailed, MissingPrerequisite, nearest, suggestion
from kernelrl_core.interfaces.component import Component
from kernelrl_core.interfaces.requirements import Missing, missing_requirements
from kernelrl_core.plugins.kinds import KINDS_BY_NAME, public_methods
from kernelrl_core.plugins.known_distributions import default_components, distribution_of, known_distributions
from kernelrl_core.plugins.load_errors import error_text, fix_of_component
from kernelrl_core.plugins.loading import PluginInfo, load_plugins
from kernelrl_core.plugins.output import SlowImports, output_to_stderr
from kernelrl_core.plugins.use import Use

if TYPE_CHECKING:
    from kernelrl_core.interfaces.advantages import AdvantageFunction
    from kernelrl_core.interfaces.backends import Backend
    from kernelrl_core.interfaces.checkers import Checker
    from kernelrl_core.interfaces.config import ComponentConfig
    from kernelrl_core.interfaces.evaluators import Evaluator
    from kernelrl_core.interfaces.feedback import Feedback
    from kernelrl_core.interfaces.loggers import Logger
    from kernelrl_core.interfaces.policies import Policy
    from kernelrl_core.interfaces.retrievers import Retriever
    from kernelrl_core.interfaces.rewards import Reward
    from kernelrl_core.interfaces.tasks import TaskSource

__all__ = ["PluginFailed", "PluginInfo", "Registry", "registry"]

T = TypeVar("T")


class PluginFailed(KernelRLError):
    """Plugin code failed; the message names the plugin."""

    see = "plugin"


@functools.cache
def registry() -> Registry:
    """The plugins of this environment, loaded once per process."""
    return Registry(load_plugins())


@attrs.frozen
class Registry:
    """The plugins of an environment and their components, in a fixed order."""

    plugins: tuple[PluginInfo, ...]
    """Sorted by name, including broken and disabled plugins."""

    def plugin(self, name: str) -> PluginInfo:
        """The plugin named `name`, or that of the distribution `name`; it may be broken or disabled.

        Raises:
            MissingPrerequisite: it is a bundled plugin that is not installed.
            LookupFailed: there is none; the message suggests the nearest name.
        """
        # If two distributions provide one name, the broken one is found by its distribution.
        named = [plugin for plugin in self.plugins if plugin.name == name]
        named += [plugin for plugin in self.plugins if plugin.dist == name]
        if named:
            return named[0]
        offers = []
        for plugin in self.plugins:
            for kind, components in plugin.components.items():
                if any(component.name == name for component in components):
                    offers.append((plugin.name, kind))
        if offers:
            hint = ", ".join(f"it is a {_singular(kind)} of plugin {plugin!r}" for plugin, kind in offers)
            raise LookupFailed(f"no plugin {name!r}; {hint}", fix=f"kernelrl plugins show {offers[0][0]}", see="plugin")
        for dist in sorted(known_distributions() & {name, f"kernelrl-{name}", f"kernelrl-plugin-{name}"}):
            raise MissingPrerequisite(f"no plugin {name!r}: {dist} is not installed", fix=f"pip install {dist}")
        close = suggestion(name, {plugin.name for plugin in self.plugins})
        raise LookupFailed(f"no plugin {name!r}; {close}", fix="kernelrl plugins list", see="plugin")

    def components(self, kind: str) -> tuple[Component, ...]:
        """All components of a kind, ordered by plugin."""
        return tuple(component for _, component in self._offers(kind))

    def defaults(self, kind: str) -> tuple[str, ...]:
        """Names of the components that plugins declare as defaults of their kind. If no installed plugin declares one:
        those of bundled plugins, so that an error names the distribution to install."""
        declared = [self.label(kind, component) for component in self.components(kind) if component.default]
        return tuple(declared) or default_components(kind)

    def default(self, kind: str) -> str:
        """Name of the component that serves where nothing names one: the only default of its kind, or the bundled one
        of several; empty if there is none."""
        names = self.defaults(kind)
        bundled = [name for name in names if name.rpartition(":")[2] in default_components(kind)]
        for candidates in (names, bundled):
            if len(candidates) == 1:
                return candidates[0]
        return ""

    def declared(self, kind: str) -> Use:
        """The default of a kind, with the defaults of its options.

        Raises:
            LookupFailed: no plugin declares one, or several do.
            MissingPrerequisite: its plugin is broken, disabled or not installed.
        """
        name = self.default(kind)
        if not name:
            declared = ", ".join(self.defaults(kind)) or "none"
            raise LookupFailed(f"no {_singular(kind)} is the default of its kind; declared: {declared}", fix="name one")
        return Use(name, self.config_class(kind, name)())

    def evaluator_of_check(self) -> str:
        """Name of the evaluator that serves `kernelrl check` where nothing names one: the first whose `serves_check`
        returns true, else the default one.

        Raises:
            PluginFailed: the function of a plugin failed.
        """
        for plugin, component in self._offers("evaluators"):
            if self._guarded(plugin, component, "serves_check failed", component.is_serving_check):
                return self.label("evaluators", component)
        return self.default("evaluators")

    def find(self, kind: str, name: str) -> Component:
        """The component named `name` or `plugin:name`.

        Raises:
            LookupFailed: no plugin or several plugins provide it.
            MissingPrerequisite: its plugin is broken, disabled or not installed.
        """
        return self._locate(kind, name)[1]

    def plugin_of(self, kind: str, name: str) -> PluginInfo:
        """The plugin of the component that `find` returns. Raises like `find`."""
        return self._locate(kind, name)[0]

    def label(self, kind: str, component: Component) -> str:
        """The shortest name that selects the component: `name`, or `plugin:name` if several plugins provide `name`."""
        same = [plugin for plugin, other in self._offers(kind) if other.name == component.name]
        if len(same) < 2:
            return component.name
        owner = next(plugin for plugin, other in self._offers(kind) if other is component)
        return f"{owner.name}:{component.name}"

    def config_class(self, kind: str, name: str) -> type[ComponentConfig]:
        """Class of a component's options; the options base class of its kind if the component names none.

        Raises:
            PluginFailed: the class cannot be imported, is not an attrs class, or does not derive from the base class.
        """
        plugin, component = self._locate(kind, name)
        what = f"options of {_singular(kind)} {component.name!r}"
        found = self._guarded(plugin, component, f"cannot import the {what}", component.load_config)
        base = KINDS_BY_NAME[kind].config
        if found is None:
            return base
        where = f"plugin {plugin.name}: the {what} ({component.config})"
        derived = f"derive a class from {base.__name__} of {KINDS_BY_NAME[kind].api}, decorated with @attrs.frozen"
        if not (isinstance(found, type) and attrs.has(found)):
            raise PluginFailed(f"{where} are not an attrs class", fix=derived)
        if not issubclass(found, base):
            raise PluginFailed(
                f"{where} do not derive from {base.__name__}",
                fix=f"from {KINDS_BY_NAME[kind].api} import {base.__name__}, and derive {found.__name__} from it",
            )
        # Without a decorator of its own, a class has the fields of its base, and its options would be ignored.
        ignored = [name for name in inspect.get_annotations(found) if name not in attrs.fields_dict(found)]
        if ignored and "__attrs_attrs__" not in vars(found):
            raise PluginFailed(
                f"{where} are not an attrs class: the field {ignored[0]} would be ignored",
                fix=f"write @attrs.frozen above {found.__name__}",
            )
        return found

    def load(self, kind: str, name: str) -> Any:
        """Import the implementation of a component without calling it. Raises like `make`."""
        plugin, component = self._locate(kind, name)
        what = f"{_singular(kind)} {component.name!r}"

        def load() -> Any:
            with SlowImports() as slow, slow.of_implementation(f"{what} of plugin {plugin.name}"):
                return component.load()

        loaded = self._guarded(plugin, component, f"cannot import the {what}", load)
        if not callable(loaded):
            raise PluginFailed(
                f"plugin {plugin.name}: the {what} ({component.target}) is a {type(loaded).__name__}, not a class",
                fix="let target= of the Component name a class or a function",
            )
        return loaded

    @overload
    def make(self, kind: Literal["backends"], use: Use) -> Backend: ...
    @overload
    def make(self, kind: Literal["evaluators"], use: Use) -> Evaluator: ...
    @overload
    def make(self, kind: Literal["tasks"], use: Use) -> TaskSource: ...
    @overload
    def make(self, kind: Literal["retrievers"], use: Use) -> Retriever: ...
    @overload
    def make(self, kind: Literal["rewards"], use: Use) -> Reward: ...
    @overload
    def make(self, kind: Literal["checkers"], use: Use) -> Checker: ...
    @overload
    def make(self, kind: Literal["feedback"], use: Use) -> Feedback: ...
    @overload
    def make(self, kind: Literal["policies"], use: Use) -> Policy: ...
    @overload
    def make(self, kind: Literal["advantages"], use: Use) -> AdvantageFunction: ...
    @overload
    def make(self, kind: Literal["loggers"], use: Use) -> Logger: ...
    def make(self, kind: str, use: Use) -> Any:
        """Construct the implementation that `use` names with its options.

        Raises:
            LookupFailed, MissingPrerequisite: as `find`; or a module in `Component.requires` is not installed.
            KernelRLError: raised by the component itself; passes unchanged.
            PluginFailed: any other exception in import or construction, or the implementation does not derive from the
                base class of its kind.
        """
        plugin, component = self._locate(kind, use.use)
        target = self.load(kind, use.use)
        what = f"{_singular(kind)} {component.name!r}"
        config = self.config_class(kind, use.use)
        if missing := sorted(getattr(target, "__abstractmethods__", ())):
            names, known = ", ".join(missing), public_methods(target) - {*missing}
            raise PluginFailed(
                f"plugin {plugin.name}: the {what} ({component.target}) lacks the method {names}",
                fix=f"define {names} in {target.__name__}"
                + (f", where {close} may be misspelt" if (close := nearest(missing[0], known)) else ""),
            )

        def call() -> tuple[Any, ComponentConfig]:
            options = config() if use.options is None else use.options
            return (target(options) if component.config else target()), options

        made, options = self._guarded(plugin, component, f"cannot make the {what}", call)
        base = KINDS_BY_NAME[kind].base
        if base is not None and not isinstance(made, base):
            raise PluginFailed(
                f"plugin {plugin.name}: the {what} ({component.target}) does not derive from {base.__name__}",
                fix=f"from {KINDS_BY_NAME[kind].api} import {base.__name__}, and derive {type(made).__name__} from it",
            )
        # Imported here: declarations need the classes of all values, and a list of the plugins needs none of them.
        from kernelrl_core.plugins.declarations import declaration_faults

        # Those of a task source are found by listing its tasks, which may need a file or a network.
        fault = next(declaration_faults(kind, made, options), None) if kind != "tasks" else None
        if fault is not None:
            message, fix = fault
            raise PluginFailed(f"plugin {plugin.name}: {what}: {message}", fix=f"in the plugin, {fix}")
        return made

    def unknown_methods(self, kind: str, name: str) -> tuple[str, ...]:
        """Messages about public methods of a component's class or options that their base class does not define, each
        with the nearest known name. Raises like `load` and `config_class`."""
        known, implementation = KINDS_BY_NAME[kind], self.load(kind, name)
        found = []
        for cls, base in ((self.config_class(kind, name), known.config), (implementation, known.base)):
            if not isinstance(cls, type) or base is None or not issubclass(cls, base):
                continue
            # Compare with the most derived class of the core: a trainable policy has more methods than a policy.
            nearest_base = next(owner for owner in cls.__mro__ if owner.__module__ == base.__module__)
            methods = public_methods(nearest_base)
            found += [
                f"{cls.__name__}.{method} is not a method of {nearest_base.__name__}; {suggestion(method, methods)}"
                for method in sorted(public_methods(cls) - methods)
            ]
        return tuple(found)

    def missing(self, component: Component, options: ComponentConfig | None = None) -> tuple[Missing, ...]:
        """Prerequisites of the component, declared or dependent on its options, that this machine lacks."""
        declared = [component.requires, *([options.requires()] if options is not None else [])]
        return tuple(dict.fromkeys(missing for requires in declared for missing in missing_requirements(requires)))

    def _offers(self, kind: str) -> list[tuple[PluginInfo, Component]]:
        return [(plugin, component) for plugin in self.plugins for component in plugin.components.get(kind, ())]

    def _locate(self, kind: str, name: str) -> tuple[PluginInfo, Component]:
        offers = self._offers(kind)
        wanted_plugin, _, wanted = name.rpartition(":")
        hits = [
            (plugin, component)
            for plugin, component in offers
            if component.name == wanted and wanted_plugin in ("", plugin.name)
        ]
        if len(hits) == 1:
            return hits[0]
        what = f"{_singular(kind)} {name!r}"
        if hits:
            choices = ", ".join(f"{plugin.name}:{wanted}" for plugin, _ in hits)
            bundled = [plugin.name for plugin, _ in hits if plugin.dist == distribution_of(kind, wanted)]
            others = [plugin.name for plugin, _ in hits if plugin.name not in bundled]
            # A bundled recipe cannot be edited; an override or the variable serves there, too.
            message = f"several plugins provide {what}; write one of: {choices}"
            fix = f"write it in the recipe or after the command (KEY.use={[*bundled, *others][0]}:{wanted})"
            raise LookupFailed(message, fix=f"{fix}, or set KERNELRL_DISABLE_PLUGINS={','.join(others)}")
        self._refuse_if_unavailable(kind, wanted_plugin, wanted, what)
        names = {component.name for _, component in offers}
        names |= {f"{plugin.name}:{component.name}" for plugin, component in offers if wanted_plugin}
        close = nearest(name, names)
        hint = f"did you mean {close!r}?" if close else f"known: {', '.join(sorted(names)) or 'none'}"
        if broken := [plugin.name for plugin in self.plugins if plugin.state == "broken"]:
            hint += f" (broken plugins: {', '.join(broken)}; see 'kernelrl plugins list')"
        raise LookupFailed(f"no {what}; {hint}")

    def _refuse_if_unavailable(self, kind: str, plugin_name: str, name: str, what: str) -> None:
        dist = distribution_of(kind, name) if not plugin_name else ""
        wanted = plugin_name or dist.removeprefix("kernelrl-").removeprefix("plugin-") or name
        for plugin in self.plugins:
            if plugin.name != wanted or plugin.state == "ok":
                continue
            if plugin.state == "broken":
                problem = f"plugin {plugin.name} ({plugin.dist}) is broken: {plugin.error}"
                raise MissingPrerequisite(
                    f"no {what}: {problem}",
                    fix="; ".join(filter(None, (plugin.fix, f"kernelrl plugins show {plugin.name}"))),
                    see="plugin",
                )
            variable = plugin.error.rpartition(" ")[2]
            raise MissingPrerequisite(
                f"no {what}: plugin {plugin.name} is disabled: {plugin.error}",
                fix=f"unset or change {variable}",
                see="plugin",
            )
        if plugin_name and not nearest(plugin_name, [plugin.name for plugin in self.plugins]):
            message = f"no {what}: no plugin {plugin_name!r} is installed"
            raise MissingPrerequisite(message, fix="install it, or choose another: kernelrl plugins list")
        if dist and not any(plugin.dist == dist for plugin in self.plugins):
            raise MissingPrerequisite(f"no {what}: {dist} is not installed", fix=f"pip install {dist}")

    def _guarded(self, plugin: PluginInfo, component: Component, failure: str, call: Callable[[], T]) -> T:
        try:
            with output_to_stderr():
                return call()
        except KernelRLError:
            raise
        except ModuleNotFoundError as error:
            lacking = self.missing(component)
            if lacking and (error.name or "").partition(".")[0] in component.requires.modules:
                raise MissingPrerequisite(f"plugin {plugin.name}: {failure}: {error}", fix=lacking[0].fix) from error
            raise self._failed(plugin, component, failure, error) from error
        except (Exception, SystemExit) as error:
            raise self._failed(plugin, component, failure, error) from error

    @staticmethod
    def _failed(plugin: PluginInfo, component: Component, failure: str, error: BaseException) -> PluginFailed:
        return PluginFailed(
            f"plugin {plugin.name} ({plugin.dist} {plugin.version}): {failure}: {error_text(error)}",
            fix=fix_of_component(error, component)
            or "rerun with --debug for the traceback, and report it to the plugin's author",
        )


def _singular(kind: str) -> str:
    return KINDS_BY_NAME[kind].singular
