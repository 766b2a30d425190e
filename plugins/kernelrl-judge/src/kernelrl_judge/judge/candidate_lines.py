"""Lines of the candidate's file in messages of compilers, and in the report of a process that a fault ended.

Compilers name a source that the candidate passes to `load_inline` by a file name of the build, such as `main.cpp:21`.
Where that source, or a part of it, is a string of the candidate's file, the line there takes its place.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence

import attrs

from kernelrl_build.units import device_file, main_file

__all__ = ["crash_line", "in_own_lines"]

_PLACE = re.compile(r"\b((?:main|cuda)\d*\.(?:cpp|cu))\b(?:(:|\()(\d+))?")
"""A file of the build, with or without a line."""
_QUOTED = re.compile(r"^ *(\d+)(?= \| )")
"""The number before a source line that a compiler quotes."""
_FRAME = re.compile(r'File "[^"\n]*\bcandidate\.py", line (\d+) in (\w+)')
"""Line of `faulthandler` on a frame."""
_CANDIDATE_FILE = "candidate.py"
_LEAST_CHARACTERS = 8
"""Length of the shortest string that is looked for in a source."""
_MAX_LINES = 20_000


@attrs.frozen
class _Part:
    """A string of the candidate's file within a source of the build."""

    first: int
    """Its first line in the source."""
    count: int
    """Number of its lines."""
    line: int
    """Its first line in the candidate's file."""


def in_own_lines(text: str, source: str, requests: Sequence[bytes]) -> str:
    """A message with lines of the candidate's file in place of those of the sources that it builds.

    Args:
        text: of a compiler.
        source: the candidate's file.
        requests: builds of the candidate, the last one of which failed.
    """
    if not requests or not _PLACE.search(text):
        return text
    parts = _parts(source, json.loads(requests[-1]))
    file = ""

    def renamed(found: re.Match[str]) -> str:
        nonlocal file
        file = found[1]
        if found[3] is None:
            return _CANDIDATE_FILE if parts.get(file) else found[0]
        own = _own_line(parts, file, int(found[3]))
        return found[0] if own is None else f"{_CANDIDATE_FILE}{found[2]}{own}"

    def renumbered(found: re.Match[str]) -> str:
        own = _own_line(parts, file, int(found[1]))
        return found[0] if own is None else f"{own:>{len(found[0])}}"

    # A quoted line is one of the file that was named last.
    return "\n".join(_QUOTED.sub(renumbered, _PLACE.sub(renamed, line)) for line in text.split("\n"))


def crash_line(printed: str, source: str) -> str:
    """The line of the candidate's file in which a fault ended its process; empty if it is not known.

    Args:
        printed: by the candidate's process, with the report of `faulthandler`.
    """
    frames = _FRAME.findall(printed)
    lines = source.splitlines()
    if not frames or not 1 <= int(frames[0][0]) <= len(lines):
        return ""
    number, function = frames[0]
    return f"line {number}, in {function}: {lines[int(number) - 1].strip()}"


def _own_line(parts: Mapping[str, Sequence[_Part]], file: str, line: int) -> int | None:
    """The line of the candidate's file that is a line of a file of the build; None if there is none."""
    within = (part for part in parts.get(file, ()) if part.first <= line < part.first + part.count)
    part = next(within, None)
    return None if part is None else part.line + line - part.first


def _parts(source: str, request: dict[str, object]) -> dict[str, list[_Part]]:
    """The parts of each file of a build that are strings of the candidate's file."""
    strings = [*_strings(source)]
    found: dict[str, list[_Part]] = {}
    for key, file_name in (("cpp_sources", main_file), ("device_sources", device_file)):
        texts = request.get(key)
        for index, text in enumerate(texts if isinstance(texts, list) else []):
            found[file_name(index)] = [part for value, line in strings for part in _within(str(text), value, line)]
    return found


def _strings(source: str) -> Iterator[tuple[str, int]]:
    """Strings of the file whose lines are those of the file, the longest first, with the line of each."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) >= _LEAST_CHARACTERS:
            n_lines = node.value.count("\n")
            # Adjacent strings, and line breaks written as escapes, have other lines than the file.
            if n_lines == (node.end_lineno or node.lineno) - node.lineno and n_lines < _MAX_LINES:
                found.append((node.value, node.lineno))
    yield from sorted(found, key=lambda pair: -len(pair[0]))


def _within(text: str, value: str, line: int) -> Iterator[_Part]:
    """A string as a part of a source, or the source as a part of the string."""
    start = text.find(value)
    if start >= 0:
        yield _Part(text.count("\n", 0, start) + 1, value.count("\n") + 1, line)
        return
    start = value.find(text) if text else -1
    if start >= 0:
        yield _Part(1, text.count("\n") + 1, line + value.count("\n", 0, start))
