"""Runs on disk, and pages in a real browser."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from kernelrl_core.api.rewards import Turn
from kernelrl_core.api.runs import RunDir
from kernelrl_report.report import write_report
from kernelrl_testing.core import sample_row

sys.path.append(str(Path(__file__).parent))

from report_runs import append, credits_row, held_out_story, metrics_row, story

MakeRun = Callable[..., RunDir]
OpenPage = Callable[..., Any]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Write a finished run into `tmp_path/runs`."""

    def make(
        turns: Sequence[Turn] | None = None, held_out: Sequence[Turn] | None = None, name: str = "demo", **fields: Any
    ) -> RunDir:
        run = RunDir.create(tmp_path / "runs" / name, {"seed": 1}, {"kernelrl": "0.1.0"})
        turns = story() if turns is None else turns
        append(run, "samples", [sample_row(turn) for turn in turns])
        held_out = held_out_story() if held_out is None else held_out
        append(run, "eval_samples", [sample_row(turn) for turn in held_out])
        credited = [
            credits_row(str(turn.id), filtered=turn.id.attempt == 1, reason="uniform group" * (turn.id.attempt == 1))
            for turn in turns
        ]
        append(run, "credits", credited)
        append(run, "metrics", fields.get("metrics", [metrics_row(0), metrics_row(1)]))
        run.set_state("finished")
        run.unlock()
        return run

    return make


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium. Not for the session: its event loop would run while other tests start theirs."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    program = next(filter(None, map(shutil.which, names)), None)
    with api.sync_playwright() as playwright:
        if program is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("no Chromium: apt-get install chromium, or playwright install chromium")
        # The sandbox of the browser needs a user other than root.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@attrs.frozen
class Opened:
    """A page, and the errors that it has reported."""

    page: Any
    errors: list[str]

    def go(self, fragment: str) -> None:
        self.page.evaluate("fragment => { location.hash = fragment; }", fragment)
        self.page.wait_for_timeout(80)

    def text(self, selector: str = "main") -> str:
        found: str = self.page.locator(selector).first.inner_text()
        return found

    def ids(self) -> list[str]:
        """Names of the samples in the list."""
        self.page.wait_for_selector(".count")
        return [text.split(" ")[0] for text in self.page.locator(".sample .id").all_inner_texts()]


@pytest.fixture
def open_url(chromium: Any) -> Iterator[Callable[..., Opened]]:
    """Open an address. The test fails if the page reports an error."""
    contexts = []
    opened: list[Opened] = []

    def open_(url: str, **options: Any) -> Opened:
        context = chromium.new_context(viewport={"width": 1400, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        errors: list[str] = []
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: (errors.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.goto(url)
        page.wait_for_selector("body[data-ready]")
        opened.append(Opened(page, errors))
        return opened[-1]

    yield open_
    for context in contexts:
        context.close()
    assert [error for one in opened for error in one.errors] == []


@pytest.fixture
def open_report(open_url: Callable[..., Opened]) -> Callable[..., Opened]:
    """Write the report of a run and open it."""

    def open_(run: RunDir, fragment: str = "#/", *, max_bytes: int = 60_000_000, **options: Any) -> Opened:
        path = run.path / "report.html"
        write_report(run, path, max_bytes)
        return open_url(f"{path.absolute().as_uri()}{fragment}", **options)

    return open_
