"""Loading, validation and rendering of prompt templates.

A template has five parts, each a jinja2 block: `system`; `user`, the first user message; `feedback`, the user message
after an earlier turn; `history`, all earlier turns at the end of the first user message (`history.form: prompt`); and
`reply`, a reply with a given source. `base.jinja` defines all of them, so a template contains only its changes. A
template that extends nothing is the whole first user message.
"""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kernelrl_core.errors import UsageError, nearest_path

if TYPE_CHECKING:
    import jinja2

__all__ = ["BUILTIN", "Template", "fence_for"]

Part = Literal["system", "user", "feedback", "history", "reply"]

BUILTIN = ("kernelrl", "kernelbench", "kevin", "brief")
"""Names of the bundled templates."""

_FOLDER = Path(__file__).parent / "templates"
_BACKTICKS = re.compile(r"`{3,}")


def fence_for(text: str) -> str:
    """The shortest fence of at least three backticks that is longer than every run of three or more in `text`."""
    return "`" * max([3, *(len(run) + 1 for run in _BACKTICKS.findall(text))])


class Template:
    """A prompt template by name or path.

    Raises:
        UsageError: the name is unknown, the file is missing, or jinja2 cannot parse it; with file and line.
    """

    def __init__(self, name_or_path: str) -> None:
        import jinja2

        path = _locate(name_or_path)
        self.name = name_or_path
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader([_FOLDER, path.parent]),
            undefined=jinja2.StrictUndefined,
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
            # A run has the templates that it started with. To look for newer ones takes longer than to render.
            auto_reload=False,
        )
        self._environment.filters["fenced"] = _fenced
        self._base = self._environment.get_template("base.jinja")
        with _explained(path):
            source = path.read_text(encoding="utf-8")
            extends = any(self._environment.parse(source).find_all(jinja2.nodes.Extends))
            loader = jinja2.FileSystemLoader(path.parent)
            self._template = loader.load(self._environment, path.name, self._environment.make_globals(None))
        self._whole = self._template if extends else None
        self._path = path

    def render(self, part: Part, values: Mapping[str, Any]) -> str:
        """The text of one part, without surrounding white space.

        Raises:
            UsageError: the template uses an unknown name or raises an error; with file and line.
        """
        template: jinja2.Template = self._whole or (self._template if part == "user" else self._base)
        with _explained(self._path):
            return template.render(part=part, **values).strip()


def _locate(name_or_path: str) -> Path:
    if name_or_path in BUILTIN:
        return _FOLDER / f"{name_or_path}.jinja"
    path = Path(name_or_path).expanduser()
    if path.is_file():
        return path.resolve()
    if "/" in name_or_path or path.suffix:
        raise UsageError(f"prompt.template: {name_or_path}: no such file{nearest_path(path)}")
    near = difflib.get_close_matches(name_or_path, BUILTIN, n=1)
    hint = f", did you mean {near[0]!r}?" if near else ""
    raise UsageError(
        f"prompt.template: unknown template {name_or_path!r}{hint}",
        fix=f"one of {', '.join(BUILTIN)}, or the path of a jinja2 file",
        see="prompt-template",
    )


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Convert errors of jinja2 to a `UsageError` with file and line of the template."""
    import jinja2

    try:
        yield
    except jinja2.TemplateNotFound as error:
        raise UsageError(f"{path}: extends or includes the unknown template {error.name!r}") from error
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(f"{error.filename or path}:{error.lineno}: {error.message}") from error
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(".jinja")]
        frames += [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else str(path)
        raise UsageError(
            f"{where}: {error}", fix="see the variables of templates in docs/prompts.md", see="prompt-template"
        ) from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


def _fenced(code: str, tag: str = "python") -> str:
    """Code as a fenced block; the fence is longer than every fence in the code."""
    fence = fence_for(code)
    return f"{fence}{tag}\n{code.rstrip()}\n{fence}"
