"""The pages: each is in the table of contents, every link has a target, and Sphinx builds the site strictly."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "plugins/*/README.md", "examples/*/README.md")
    for path in ROOT.glob(pattern)
)
HAS_SPHINX = all(importlib.util.find_spec(name) for name in ("sphinx", "furo", "myst_parser"))


def configuration() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conf", ROOT / "docs/conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """Targets of the links and pictures of a page."""
    inner = [child for token in tokens(page) if token.type == "inline" for child in token.children or ()]
    found = [child.attrs.get("href" if child.type == "link_open" else "src") for child in inner]
    return [str(target) for target in found if target]


@cache
def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as code hosts and Sphinx make them."""
    seen: Counter[str] = Counter()
    found = set()
    for opening, token in zip(tokens(page), tokens(page)[1:], strict=False):
        if opening.type == "heading_open":
            text = "".join(child.content for child in token.children or ())
            slug = re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-")
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_a_target(page: Path) -> None:
    dead = []
    for link in links(page):
        if re.match("https?://", link):
            continue
        target, _, anchor = unquote(link).partition("#")
        linked = (page.parent / target).resolve() if target else page
        if not linked.is_file() or (anchor and linked.suffix == ".md" and anchor not in anchors(linked)):
            dead.append(link)
    assert dead == []


def listed_pages() -> list[str]:
    return [page for _, pages in configuration().table_of_contents() for _, page in pages]


def test_every_page_is_once_in_the_table_of_contents() -> None:
    listed = Counter(listed_pages())
    # The page of a code host, and the table itself.
    others = {"README", configuration().INDEX}
    pages = {str(page.relative_to(ROOT).with_suffix("")) for page in PAGES} - others
    assert sorted(pages - set(listed)) == [], "add a line to docs/more.md"
    assert [page for page, times in listed.items() if times > 1] == []


def test_the_table_of_contents_has_groups_of_pages() -> None:
    text = "# T\n\n## A\n\n- [b](b.md): text\n- [c](d/c.md)\n- [r](../R.md)\n\n## B\n"
    assert configuration().groups(text) == [("A", [("b", "docs/b"), ("c", "docs/d/c"), ("r", "R")]), ("B", [])]


def test_a_door_has_ten_links_at_most_and_every_page_is_two_clicks_away() -> None:
    doors = configuration().groups((ROOT / "docs/index.md").read_text(encoding="utf-8"))
    assert [caption for caption, pages in doors if len(pages) > 10] == []
    first = {page for _, pages in doors for _, page in pages}
    linked = {
        str((ROOT / page).parent.joinpath(link.partition("#")[0]).resolve().relative_to(ROOT).with_suffix(""))
        for page in first
        for link in links(ROOT / f"{page}.md")
        if not re.match("https?://", link)
    }
    assert set(listed_pages()) - first - linked == set()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One strict build for all tests of this module."""
    if not HAS_SPHINX:
        pytest.skip("needs Sphinx, Furo and MyST: make docs")
    folder = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--fail-on-warning", "--nitpicky", "--conf-dir", "docs", "-d", str(folder / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, ".", str(folder / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_the_site_has_every_page_of_the_table_of_contents(site: Path) -> None:
    assert [page for page in listed_pages() if not (site / f"{page}.html").is_file()] == []


def test_the_entrance_opens_the_first_page(site: Path) -> None:
    found = re.search('url=([^"]+)"', (site / "index.html").read_text(encoding="utf-8"))
    assert found is not None
    assert (site / found[1]).is_file()


def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    remote = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*(?:src|href)=["'](?:https?:)?//|@import""")
    assert [page.name for page in site.rglob("*.html") if remote.search(page.read_text(encoding="utf-8"))] == []
