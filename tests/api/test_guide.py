"""The author's guide: its pages match their sources, and its first plugin works as written."""

from __future__ import annotations

import ast
import difflib
import itertools
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import reference_pages
from docpages import findings
from kernelrl_command_server import CommandServer
from kernelrl_unpacked_plugins import Shell

from kernelrl_core.types import Rule

ROOT = Path(__file__).parents[2]
MAX_OWN_LINES = 15
"""Lines that the author of a first plugin writes or changes, without empty ones."""


@pytest.fixture(scope="module")
def generated() -> Mapping[Path, str]:
    """Path -> text of every generated page."""
    return reference_pages.generated()


def test_generated_pages_match_their_sources(generated: Mapping[Path, str]) -> None:
    differing: list[str] = []
    for path, text in generated.items():
        saved = path.read_text(encoding="utf-8")
        differing += difflib.unified_diff(saved.splitlines(), text.splitlines(), path.name, n=0)
    assert differing == [], "run: python scripts/reference_pages.py"


def test_folders_of_generated_pages_have_no_other_page(generated: Mapping[Path, str]) -> None:
    folders = {path.parent for path in generated} - {ROOT / "docs"}
    assert {path for folder in folders for path in folder.iterdir()} == {
        path for path in generated if path.parent in folders
    }


FIRST = (
    (ROOT / "docs/plugins.md")
    .read_text(encoding="utf-8")
    .partition("\n## Your first plugin\n")[2]
    .partition("\n## ")[0]
)
PARTS = re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", FIRST, re.MULTILINE | re.DOTALL)
PLUGINS = {title: text for title, text in PARTS if "kernelrl plugins new" in text}
"""Heading -> text of the part about one plugin."""
STEP = re.compile(
    r"^(?:In `(?P<path>[\w.]+)`, (?P<names>`\w+`(?: and `\w+`)*) becomes?\b(?:(?!\n\n).)*|Add to `(?P<longer>[\w.]+)`:"
    r")?(?:\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


def edited(source: str, names: set[str], text: str) -> str:
    """A source in which the definitions, or keyword arguments, of these names are replaced by a text."""
    found = []
    nodes = [(node, below) for owner in ast.walk(ast.parse(source)) for node, below in neighbours(owner)]
    for node, below in nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        name = getattr(node, "name", None) or getattr(node, "arg", None) or getattr(target, "id", None)
        if name in names:
            is_option = isinstance(node, ast.AnnAssign) and isinstance(below, ast.Expr)
            found.append((node.lineno, (below if is_option else node).end_lineno, node.col_offset))
    assert len(found) == len(names), (names, found)
    lines = source.splitlines(keepends=True)
    for first, last, _ in sorted(found, reverse=True):
        del lines[first - 1 : last]
    first, _, column = min(found)
    return "".join([*lines[: first - 1], textwrap.indent(text, " " * column), *lines[first - 1 :]])


def neighbours(owner: ast.AST) -> list[tuple[Any, Any]]:
    """The statements of a body, each with the next one; the keyword arguments of a call."""
    body: list[Any] = getattr(owner, "keywords", None) or getattr(owner, "body", None) or []
    return list(itertools.zip_longest(body, body[1:])) if isinstance(body, list) else []


class Reader(Shell):
    """Does what the guide shows, in an empty folder."""

    def __init__(self, folder: Path, server: CommandServer) -> None:
        super().__init__(folder, server)
        self.own_lines: list[str] = []
        self.removed: set[str] = set()

    def follow(self, text: str) -> None:
        for step in STEP.finditer(text):
            if step["language"] == "sh":
                for command in step["text"].splitlines():
                    self.call(command)
            elif step["language"] == "yaml":
                (self.folder / "mine.yaml").write_text(step["text"])
                assert self.call("kernelrl validate mine.yaml") == "mine: ok\n"
            else:
                self.edit(step)

    def edit(self, step: re.Match[str]) -> None:
        (path,) = self.folder.rglob(step["path"] or step["longer"])
        before = path.read_text()
        if step["longer"]:
            after = f"{before}\n\n{step['text']}"
        else:
            names = set(re.findall(r"`(\w+)`", step["names"]))
            self.removed |= {name for name in names if name not in step["text"]}
            after = edited(before, names, step["text"])
        path.write_text(after)
        changes = difflib.ndiff(before.splitlines(), after.splitlines())
        self.own_lines += [line[2:] for line in changes if line.startswith("+ ") and line[2:].strip()]


@pytest.mark.parametrize("title", PLUGINS)
def test_a_first_plugin_is_short_and_passes_its_tests_and_its_check(
    title: str, tmp_path: Path, command_server: CommandServer
) -> None:
    reader = Reader(tmp_path, command_server)
    reader.follow(PLUGINS[title])
    (created,) = tmp_path.glob("kernelrl-plugin-*")
    before_the_recipe = reader.programs[: reader.programs.index("python") + 2]
    assert before_the_recipe == ["kernelrl", "pip", "python", "kernelrl"]
    assert len(reader.own_lines) <= MAX_OWN_LINES, reader.own_lines
    source = "".join(path.read_text() for path in created.rglob("*.py"))
    assert [name for name in reader.removed if re.search(rf"\b{name}\b", source)] == []


def test_the_table_of_files_is_complete(tmp_path: Path, command_server: CommandServer) -> None:
    reader = Reader(tmp_path, command_server)
    reader.call("kernelrl plugins new rewards few-atomics")
    (created,) = tmp_path.iterdir()
    files = {path.name for path in created.rglob("*") if path.is_file()}
    listed = {name for row in re.findall(r"^\| (`.*?`) \|", FIRST, re.MULTILINE) for name in re.findall("`(.+?)`", row)}
    assert listed == files - {"py.typed"}


@pytest.mark.parametrize(("by", "rule"), findings.declared_rules(), ids=lambda value: getattr(value, "id", None))
def test_every_finding_has_a_complete_entry(by: str, rule: Rule) -> None:
    assert all((rule.statement, rule.reason, rule.example, rule.look_alike, rule.misses)), by
