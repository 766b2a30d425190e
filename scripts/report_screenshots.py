"""Take the screenshots of the report that the documentation shows.

    python scripts/report_screenshots.py RUN [--output FOLDER]

Writes `report_WIDTH_SCHEME.png` for each width of the window and each colour scheme. Needs playwright, Pillow and
Chromium (`apt-get install chromium`). The run of docs/reports.md:

    kernelrl run quickstart_multi_turn --name too_fast train.learning_rate=0.01 train.steps=14 train.tasks_per_step=4 \\
        train.group_size=4 policy.warm_start.steps=300 eval.samples=2 eval.max_tasks=6 eval.every=5
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from kernelrl_core.api.runs import find_run
from kernelrl_report.report import write_report

DOCS = Path(__file__).resolve().parents[1] / "docs"
WINDOWS = {420: 900, 900: 1000, 1600: 1000}
"""Width -> height in pixels."""
SCHEMES = ("light", "dark")
COLOURS = 255
MAX_BYTES = 60_000_000


def take(report: Path, folder: Path) -> list[Path]:
    """Screenshots of a report, one per window and scheme.

    Raises:
        AssertionError: the page is wider than its window.
    """
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    written = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for width, height in WINDOWS.items():
            for scheme in SCHEMES:
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                page.goto(report.absolute().as_uri())
                page.wait_for_selector("body[data-ready]")
                page.wait_for_selector(".chart svg[viewBox]")
                overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert overflow <= 0, f"the page is {overflow} px wider than a window of {width} px"
                path = folder / f"report_{width}_{scheme}.png"
                page.screenshot(path=path)
                # A page of few colours: less than half of the size, without a visible difference.
                palette = Image.open(path).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
                palette.save(path, optimize=True)
                page.close()
                written.append(path)
        browser.close()
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--output", type=Path, default=DOCS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        write_report(find_run(options.run), report, MAX_BYTES)
        for path in take(report, options.output):
            print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
