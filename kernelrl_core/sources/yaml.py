"""YAML 1.2 reader for recipes, price tables and scripts, with the line number of every value.

PyYAML follows YAML 1.1: `1e-5` is text, `no` is false, `1:30` is ninety, `010` is eight, dates become objects, and a
repeated key silently replaces the earlier value. Here scalars follow the core schema of YAML 1.2, and a repeated key is
an error. Merge keys (`<<`) and tags are refused; recipes use `extends` instead.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any

import attrs
import yaml

from kernelrl_core.errors import UsageError

__all__ = ["Document", "Path", "YamlProblem", "dump", "load_yaml", "parse", "parse_value"]

Path = tuple[str, ...]
"""Keys from the root; list indices as text."""

_MAX_NODES = 100_000
_PREFIX = "tag:yaml.org,2002:"


@attrs.frozen
class Document:
    """A YAML text as plain data."""

    data: Any
    """Maps, lists, text, numbers, booleans and None."""
    lines: dict[Path, int]
    """Path -> line, from 1."""


class YamlProblem(Exception):
    """The text is not an accepted YAML document."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class _Loader(yaml.SafeLoader):
    # A new table: the inherited one contains the rules of YAML 1.1, which would match first.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


class _Dumper(yaml.SafeDumper):
    # Writing applies the rules of both versions: text is quoted if either would not read it as text.
    def ignore_aliases(self, data: Any) -> bool:
        return True


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+0123456789."),
    ),
):
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(f"{_PREFIX}{_tag}", re.compile(rf"(?:{_pattern})\Z"), _first)


def dump(data: Any, *, flat: bool = False) -> str:
    """Plain data as YAML that `parse` and readers of YAML 1.1 parse to the same types.

    Args:
        flat: whether lists and mappings without others inside are on one line.
    """
    style = None if flat else False
    text: str = yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, default_flow_style=style
    )
    return text


def parse(text: str) -> Document:
    """Parse one YAML document; the data of an empty text is None.

    Raises:
        YamlProblem: syntax error, repeated key, tag, or cyclic reference.
    """
    try:
        root = yaml.compose(text, _Loader)
        reader = _Reader()
        return Document(reader.value(root, ()) if root is not None else None, reader.lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = f"not YAML: {' '.join(filter(None, (error.context, error.problem)))}"
        if "'\\t'" in message:
            message = "a tab where YAML requires spaces; write spaces instead"
        raise YamlProblem(message, mark.line + 1 if mark else None) from None
    except yaml.YAMLError as error:
        raise YamlProblem(f"not YAML: {str(error).splitlines()[0]}", None) from None
    except RecursionError:
        raise YamlProblem("nested too deeply", None) from None


def parse_value(text: str) -> Any:
    """Parse the value of an override such as `1e-5`, `[1, 2]` or `{use: torch}`. Raises like `parse`."""
    return parse(text).data


def load_yaml(text: str, path: pathlib.Path) -> Any:
    """Parse the text of a YAML file to plain data.

    Raises:
        UsageError: where `parse` raises; the message has file and line.
    """
    try:
        return parse(text).data
    except YamlProblem as problem:
        place = path if problem.line is None else f"{path}:{problem.line}"
        raise UsageError(f"{place}: {problem.message}") from problem


class _Reader:
    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self._open: set[int] = set()
        self._n_nodes = 0

    def value(self, node: yaml.Node, path: Path) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._n_nodes += 1
        if id(node) in self._open:
            raise YamlProblem("an anchor refers to itself", line)
        if self._n_nodes > _MAX_NODES:  # aliases of aliases grow without bound
            raise YamlProblem(f"more than {_MAX_NODES:,} values", line)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path, line)
            if isinstance(node, yaml.SequenceNode):
                _refuse_tag(node, "seq", line)
                return [self.value(item, (*path, str(index))) for index, item in enumerate(node.value)]
            return _scalar(node, line)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, path: Path, line: int) -> dict[Any, Any]:
        _refuse_tag(node, "map", line)
        result: dict[Any, Any] = {}
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise YamlProblem("a key must be a single word", key_line)
            key = _scalar(key_node, key_line)
            # Compared as text: `1` and `"1"` are one path.
            if str(key) in first:
                raise YamlProblem(f"key {str(key)!r} is given twice, first on line {first[str(key)]}", key_line)
            first[str(key)] = key_line
            below = (*path, str(key))
            self.lines[below] = key_line
            result[key] = self.value(value_node, below)
        return result


def _refuse_tag(node: yaml.Node, expected: str, line: int) -> None:
    if node.tag != f"{_PREFIX}{expected}":
        raise YamlProblem(f"the tag {node.tag!r} is not supported", line)


def _scalar(node: yaml.Node, line: int) -> Any:
    text = node.value
    kind = node.tag.removeprefix(_PREFIX)
    try:
        match kind:
            case "str":
                return text
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
            case "float":
                # Python spells infinities and NaN without the dot.
                return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError as error:
        raise YamlProblem(f"{text[:40]!r} is not a {kind}: {error}", line) from None
    raise YamlProblem(f"the tag {node.tag!r} is not supported", line)
