"""The checkable parts of a Markdown page: code blocks and code spans, with their lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import attrs
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
_NOT_WRITTEN_HERE = ("_build", "node_modules", ".venv", "mutants")
_FIRST_LINE = re.compile(r"# ([\w./-]+\.(?:py|yaml|toml|jsonl?|txt))\b")
_EDIT = re.compile(r"(In|Add to) `[\w./-]+`")
_ANNOUNCED = re.compile(r"`([\w./-]+\.(?:py|yaml|toml|jsonl?|txt))`:(?:\s|$)")


@attrs.frozen
class Block:
    """A fenced code block, or an indented one, whose language is empty."""

    place: str
    """Page and first line, such as `docs/tasks.md:12`."""
    language: str
    text: str
    file: str = ""
    """The file that the block shows, by a comment in its first line or by "`FILE`:" before it. Empty: none."""
    edits: bool = False
    """The block is a part of a file that the page changes: "In `FILE`, `NAME` becomes:", "Add to `FILE`:" before it."""


def pages() -> list[Path]:
    """All pages that a user reads, except the changelog, which describes former versions."""
    patterns = ("*.md", "docs/**/*.md", "plugins/*/README.md", "examples/**/README.md", "benchmarks/**/*.md")
    found = {page for pattern in patterns for page in ROOT.glob(pattern)}
    return sorted(
        page
        for page in found
        if page.name != "CHANGELOG.md" and not set(_NOT_WRITTEN_HERE) & set(page.relative_to(ROOT).parts)
    )


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@cache
def _tokens(page: Path) -> tuple[Token, ...]:
    return tuple(MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")))


def _inline(page: Path) -> Iterator[tuple[int, Token]]:
    """The inline tokens of a page, each with the first line of its paragraph, table row or heading."""
    line = 0
    for token in _tokens(page):
        line = token.map[0] + 1 if token.map else line
        for child in token.children or ():
            yield line, child


def blocks(page: Path) -> list[Block]:
    """The code blocks of a page, except directives of the documentation site (`{toctree}`)."""
    found, before = [], ""
    for token in _tokens(page):
        if token.type in ("fence", "code_block") and not token.info.startswith("{"):
            assert token.map is not None
            language = token.info.split()[0] if token.info else ""
            named = _FIRST_LINE.match(token.content) or _ANNOUNCED.search(before)
            place = f"{name(page)}:{token.map[0] + 1}"
            found.append(Block(place, language, token.content, named[1] if named else "", bool(_EDIT.match(before))))
            before = ""
        elif token.type == "inline":
            before = token.content
    return found


def files(page: Path) -> dict[str, str]:
    """Path -> text of the files that a page shows."""
    return {block.file: block.text for block in blocks(page) if block.file}


def spans(page: Path) -> list[tuple[str, str]]:
    """Place and text of the code spans of a page."""
    return [(f"{name(page)}:{line}", token.content) for line, token in _inline(page) if token.type == "code_inline"]
