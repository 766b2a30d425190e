"""Configuration of the documentation site: Sphinx, MyST, Furo. `make docs` builds it.

The sources are the Markdown files that a code host shows, so links are relative paths of the repository.
`docs/index.md` is the table of contents: a heading is a group of the sidebar, a list item a page, an indented list item
a page below that page. Sphinx fails for a page that the index does not list.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import join, normpath, relpath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
INDEX = "docs/index"

project = "kernelrl"
release = re.findall(r'__version__ = "(.+)"', (ROOT / "kernelrl_core/version.py").read_text(encoding="utf-8"))[0]

extensions = ["myst_parser"]
root_doc = INDEX
source_suffix = {".md": "markdown"}
include_patterns = ["docs/**", "plugins/*/README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
# Folders that need not be searched for pages.
exclude_patterns = [
    ".*",
    "benchmarks",
    "build",
    "dist",
    "kernelrl_core",
    "mutants",
    "plugins/*/src",
    "plugins/*/tests",
    "runs",
    "tests",
]
nitpicky = True
# Excerpts of code may have an ellipsis.
suppress_warnings = ["misc.highlighting_failure"]
# Fenced blocks name their language.
highlight_language = "none"
# The anchors of headings are those of code hosts.
myst_heading_anchors = 6

html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_use_index = False
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
# A browser loads no other page from file://.
html_show_search_summary = False


def pages_below(index: str) -> dict[str, list[tuple[str, list[str]]]]:
    """Page -> caption and pages of each group directly below it, from the list items of the index."""
    found: dict[str, list[tuple[str, list[str]]]] = {INDEX: []}
    above = INDEX
    for line in index.splitlines():
        if line.startswith("## "):
            found[INDEX].append((line[3:], []))
        elif item := re.match(r"( *)- \[[^]]+\]\(([^)#]+)\.md\)", line):
            page = normpath(join("docs", item[2]))
            if item[1]:
                found.setdefault(above, [("", [])])[-1][1].append(page)
            else:
                found[INDEX][-1][1].append(page)
                above = page
    return found


def add_toctrees(app: Any, page: str, source: list[str]) -> None:
    """Append the hidden tables of contents of a page to its text."""
    index = ROOT / f"{INDEX}.md"
    for caption, pages in pages_below(index.read_text(encoding="utf-8")).get(page, []):
        app.env.note_dependency(str(index))
        options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
        names = [f"/{name}" for name in pages]
        source[0] += "\n\n" + "\n".join(["```{toctree}", *options, "", *names, "```"]) + "\n"


def add_entrance(app: Any, error: Exception | None) -> None:
    """Write `index.html`, which opens the first page."""
    if error is None:
        target = relpath(f"{INDEX}.html")
        text = f'<!doctype html><title>{project}</title><meta http-equiv="refresh" content="0; url={target}">\n'
        (Path(app.outdir) / "index.html").write_text(text, encoding="utf-8")


def setup(app: Any) -> None:
    app.connect("source-read", add_toctrees)
    app.connect("build-finished", add_entrance)
