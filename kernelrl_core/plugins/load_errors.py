"""Messages about plugins that fail to load or take long to import."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, TracebackType

from kernelrl_core.errors import suggestion
from kernelrl_core.interfaces.component import Component

__all__ = ["SlowImports", "explained", "fix_of", "say"]

_LONG_S = 3.0
_LOOK_EVERY_S = 0.5


def say(text: str) -> None:
    """Print a line on standard error."""
    print(f"kernelrl: {text}", file=sys.stderr)


def explained(error: BaseException, dist: str, phase: str) -> tuple[str, str]:
    """Message and fix for an exception of a plugin's package, each in one line. No fix: the traceback shows the place.

    Args:
        phase: `metadata`, `version`, `import`, `hooks`, or the name of a hook.
    """
    from kernelrl_core.plugins.moved import new_import

    message = " ".join(f"{type(error).__name__}: {_text(error)}".split())
    if instead := new_import(error):
        return message, f"in the plugin, write: {instead}"
    if phase == "metadata":
        return message, f"pip install --force-reinstall {dist}"
    if isinstance(error, SystemExit):
        return message, "remove the call of sys.exit from the module that the entry point names"
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.partition(".")[0]
        return message, f"pip install {top}, or import it in the implementation, where it is used"
    if phase == "hooks":
        return message, "define hooks as functions without arguments"
    return message, ""


def fix_of(error: BaseException, component: Component) -> str:
    """The change that corrects an exception in the import or the constructor of a component; empty: not known."""
    from kernelrl_core.plugins.moved import new_import

    if instead := new_import(error):
        return f"in the plugin, write: {instead}"
    if isinstance(error, SystemExit):
        return "in the plugin, remove the call of sys.exit"
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
        return f"pip install {top}; in the plugin, declare it: Component(…, requires=Requires(modules=({top!r},)))"
    if isinstance(error, TypeError) and "argument" in str(error):
        takes = "one argument, the options" if component.config else "no argument, or name its options with config="
        return f"in the plugin, let {component.target.partition(':')[2]} take {takes}"
    return ""


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # `__str__` of a plugin's exception is plugin code, too
        return "(the text of the exception is not available)"


class SlowImports:
    """Context in which plugins are imported. A line names a plugin whose import takes long, while it does."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._current: tuple[str, float] | None = None
        # Daemon: must not keep the process alive where an import ends it.
        self._thread = threading.Thread(target=self._look, name="kernelrl-imports", daemon=True)

    def __enter__(self) -> SlowImports:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def watch(self, plugin: str) -> Iterator[None]:
        """Context of the import of one plugin."""
        self._current = plugin, time.monotonic()
        try:
            yield
        finally:
            self._current = None

    def _look(self) -> None:
        said = ""
        while not self._ended.wait(_LOOK_EVERY_S):
            current = self._current
            if current is not None and current[0] != said and time.monotonic() - current[1] >= _LONG_S:
                said = current[0]
                say(
                    f"the import of plugin {said} has taken {_LONG_S:g} s so far; "
                    f"fix: move slow imports into its implementation, or set KERNELRL_DISABLE_PLUGINS={said}"
                )
