"""Configuration of the documentation site: Sphinx, MyST, Furo. `make docs` builds it.

The sources are the Markdown files that a code host shows, so links are relative paths of the repository.
`docs/index.md` and `docs/more.md` are the table of contents: a heading is a group of the sidebar, a list item a page.
Sphinx fails for a page that neither lists.
"""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from posixpath import join, normpath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
INDEX = "docs/index"
MORE = "docs/more"

project = "kernelrl"
release = re.findall(r'__version__ = "(.+)"', (ROOT / "kernelrl_core/version.py").read_text(encoding="utf-8"))[0]

extensions = ["myst_parser"]
root_doc = INDEX
source_suffix = {".md": "markdown"}
include_patterns = ["docs/**", "plugins/*/README.md", "examples/*/README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
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


Group = tuple[str, list[tuple[str, str]]]
"""Caption, and title and name of its pages."""


def groups(text: str) -> list[Group]:
    """The groups of a page with lists of pages."""
    found: list[Group] = []
    for line in text.splitlines():
        if line.startswith("## "):
            found.append((line[3:], []))
        elif item := re.match(r"- \[([^]]+)\]\(([^)#]+)\.md\)", line):
            found[-1][1].append((item[1].replace("`", ""), normpath(join("docs", item[2]))))
    return found


def table_of_contents() -> list[Group]:
    """All groups of the sidebar."""
    texts = [(ROOT / f"{page}.md").read_text(encoding="utf-8") for page in (INDEX, MORE)]
    return [group for text in texts for group in groups(text)]


def add_toctrees(app: Any, page: str, source: list[str]) -> None:
    """Append the hidden table of contents to the text of the first page."""
    if page == INDEX:
        app.env.note_dependency(str(ROOT / f"{MORE}.md"))
        for caption, pages in table_of_contents():
            entries = [f"{title} </{name}>" for title, name in pages]
            source[0] += (
                "\n\n" + "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```"]) + "\n"
            )


EXCERPTS = """// From file:// a browser fetches no page: the excerpts of search results come from this file.
const TEXTS = %s;
if (location.protocol === "file:")
  window.fetch = async (url) => {
    const page = Object.keys(TEXTS).find((name) => String(url).endsWith(`${name}.html`));
    const main = document.createElement("div");
    main.setAttribute("role", "main");
    main.textContent = TEXTS[page];
    return { text: () => main.outerHTML };
  };
"""
TEXTS: dict[str, str] = {}
"""Page -> its text without markup."""


def keep_text(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Keep the text of a page, and load all texts on the page of the search."""
    if page == "search":
        app.add_js_file("excerpts.js")
    elif doctree is not None:
        TEXTS[page] = " ".join(unescape(re.sub(r"<[^>]+>", " ", context["body"])).replace("¶", "").split())


def add_files(app: Any, error: Exception | None) -> None:
    """Write `index.html`, which opens the first page, and the excerpts of the search."""
    if error is None:
        folder = Path(app.outdir)
        link = f'<meta http-equiv="refresh" content="0; url={INDEX}.html">'
        (folder / "index.html").write_text(f"<!doctype html><title>{project}</title>{link}\n", encoding="utf-8")
        text = EXCERPTS % json.dumps(dict(sorted(TEXTS.items())), ensure_ascii=False).replace("<", "\\u003c")
        (folder / "_static/excerpts.js").write_text(text, encoding="utf-8")


def setup(app: Any) -> None:
    app.connect("source-read", add_toctrees)
    app.connect("html-page-context", keep_text)
    app.connect("build-finished", add_files)
