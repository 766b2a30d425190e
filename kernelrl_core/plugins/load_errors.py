"""Messages about exceptions of plugin code, and the changes that correct them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import ModuleType

from kernelrl_core.errors import suggestion
from kernelrl_core.interfaces.component import Component

__all__ = ["error_text", "fix_of_component", "fix_of_plugin", "one_line"]

_FROM_API = "in the plugin, write an import from kernelrl_core.api, whose names docs/reference/python.md lists"
_NO_EXIT = "in the plugin, remove the call of sys.exit"


def one_line(text: str) -> str:
    """The text with each run of white space as one space."""
    return " ".join(text.split())


def error_text(error: BaseException) -> str:
    """Class and message of an exception of plugin code, in one line."""
    try:
        text = str(error)
    except Exception:  # `__str__` of a plugin's exception is plugin code, too
        text = "(the text of the exception is not available)"
    return one_line(f"{type(error).__name__}: {text}")


def fix_of_plugin(
    error: BaseException, stage: str, dist: str, entry_point: str, requirements: Sequence[str]
) -> tuple[str, str]:
    """Message and fix for an exception of a plugin's package, each in one line. No fix: the traceback shows the place.

    Args:
        stage: `metadata`, `version`, `import`, `hooks`, or the name of a hook.
        entry_point: its value, such as `my_plugin`.
        requirements: those of the distribution, such as `numpy>=2`.
    """
    message = error_text(error)
    if stage == "metadata":
        return message, f"pip install --force-reinstall {dist}"
    if isinstance(error, SystemExit):
        return message, "remove the call of sys.exit from the module that the entry point names"
    if _is_from_core(error):
        return message, _FROM_API
    if isinstance(error, ModuleNotFoundError) and error.name:
        module = entry_point.partition(":")[0]
        if f"{module}.".startswith(f"{error.name}."):
            where = f"correct the entry point {entry_point!r} in pyproject.toml of {dist}"
            return message, f"{where}: there is no module {error.name}"
        top = error.name.partition(".")[0]
        return message, f"{_installation(top, requirements)}, or import it in the implementation, where it is used"
    if stage == "hooks":
        return message, "define hooks as functions without arguments"
    return message, ""


def fix_of_component(error: BaseException, component: Component) -> str:
    """The change that corrects an exception in the import or the constructor of a component; empty: not known."""
    if _is_from_core(error):
        return _FROM_API
    if isinstance(error, SystemExit):
        return _NO_EXIT
    targets = {"target": component.target, "config": component.config}
    for key, (module, _, attribute) in ((key, text.partition(":")) for key, text in targets.items()):
        wrong = f"in the plugin, correct {key}={targets[key]!r} of Component({component.name!r}, …)"
        if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType) and error.name == attribute:
            names = [name for name in vars(error.obj) if not name.startswith("_")]
            return f"{wrong}; {suggestion(attribute, names)}"
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            return f"{wrong}: there is no module {error.name}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.partition(".")[0]
        declared = f"requires=Requires(modules=({top!r},), fix='pip install …')"
        return f"{_installation(top, ())}; in the plugin, declare it: Component(…, {declared})"
    if isinstance(error, TypeError) and "argument" in str(error):
        takes = "one argument, the options" if component.config else "no argument, or name its options with config="
        return f"in the plugin, let {component.target.partition(':')[2]} take {takes}"
    return ""


def _is_from_core(error: BaseException) -> bool:
    return isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "kernelrl_core"


def _installation(module: str, requirements: Sequence[str]) -> str:
    """The command that installs a module. A name that no requirement of the plugin states may be anybody's package."""
    for requirement in requirements:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        if re.sub(r"[-.]", "_", name).lower() == module.lower():
            return f"pip install {name}"
    return f"install the package that provides the module {module}"
