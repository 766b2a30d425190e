"""Time, memory and size of `kernelrl report` and `kernelrl view`, and the speed of their page in Chromium.

    kernelrl run quickstart_multi_turn --name sample_of_rows train.steps=6
    python benchmarks/report.py runs/sample_of_rows --output benchmarks/results/report.json

Two runs are made of the rows of a real one. `quickstart` has 10,000 samples: its rows, repeated with other ids and one
changed line per kernel. `long` has 2,000 samples in episodes of 4 turns, each reply with 16,384 tokens and about 4
characters per token: sentences of this repository's documentation in random order, then a kernel.

Each report is written by a fresh process, whose wall time and largest resident set are measured. The page is opened in
headless Chromium from a file: time from the start of the navigation to the first picture of the overview, and from the
change of a filter to the next picture. The server of `view` gets one request a second of one open page, while ten rows
a second are appended to the run; its CPU time is measured over half a minute. Needs playwright and Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import psutil
from playwright.sync_api import Page, sync_playwright
from provenance import ROOT, provenance

KERNELRL = Path(sys.executable).with_name("kernelrl")
TOKENS = 16_384
CPU_SECONDS = 30
MOUNTED = """() => new Promise((done) => {
  const found = () => {
    if (document.body.dataset.ready) requestAnimationFrame(() => done(performance.now()));
    else setTimeout(found, 5);
  };
  found();
})"""
FILTERED = """(fragment) => new Promise((done) => {
  const start = performance.now();
  // The page has changed when its own listener, which was added before, has returned.
  const changed = () => requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
  addEventListener('hashchange', changed, { once: true });
  location.hash = fragment;
})"""
OPENED = """(fragment) => new Promise((done) => {
  const old = document.querySelector('.heading');
  const start = performance.now();
  location.hash = fragment;
  const found = () => {
    const now = document.querySelector('.heading');
    if (now && now !== old) requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
    else setTimeout(found, 1);
  };
  found();
})"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run with rows to repeat")
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--long-samples", type=int, default=2_000)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    facts: dict[str, Any] = {"provenance": provenance("playwright")}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        # A program of the system, or the one of playwright.
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        facts["chromium"] = browser.version
        runs = Path(folder) / "runs"
        for name, rows in (
            ("quickstart", quickstart_rows(arguments.run, arguments.samples)),
            ("long", long_rows(arguments.run, arguments.long_samples)),
        ):
            write_run(arguments.run, runs / name, rows)
            facts[name] = {
                "journal_mb": round((runs / name / "samples.jsonl").stat().st_size / 1e6, 1),
                **measure_report(runs / name),
                "report_in_chromium": measure_page(
                    browser.new_page(), (runs / name / "report.html").as_uri(), runs / name
                ),
                **measure_view(browser.new_page(), runs / name),
            }
            print(json.dumps({name: facts[name]}, indent=2))
        browser.close()
    if arguments.output:
        arguments.output.write_text(json.dumps(facts, indent=2) + "\n")


def source_rows(run: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (run / "samples.jsonl").read_bytes().splitlines()]


def placed(row: Mapping[str, Any], step: int, task_index: int, attempt: int, turn: int) -> dict[str, Any]:
    place = {"step": step, "task_index": task_index, "attempt": attempt, "turn": turn}
    return {**row, "sample": f"{step}.{task_index}.{attempt}.{turn}", **place}


def quickstart_rows(run: Path, count: int) -> Iterator[dict[str, Any]]:
    """The rows of a run in their order, again and again, with later steps and other kernels."""
    rows = source_rows(run)
    steps = 1 + max(row["step"] for row in rows)
    for number in range(count):
        again, row = number // len(rows), rows[number % len(rows)]
        changed = orjson.loads(orjson.dumps(row).replace(b"import torch\\n", b"import torch  # %d\\n" % number))
        yield placed(changed, row["step"] + again * steps, row["task_index"], row["attempt"], row["turn"])


def long_rows(run: Path, count: int) -> Iterator[dict[str, Any]]:
    """Rows with long replies, in groups of 8 episodes of 4 turns."""
    draw = random.Random(0)
    text = " ".join(page.read_text() for page in sorted(ROOT.glob("docs/*.md")))
    sentences = [part.strip() for part in re.split(r"(?<=[.:;|])\s", text) if part.strip()]
    rows = [row for row in source_rows(run) if row["extraction"]["candidate"]]
    # Token ids and log-probabilities are read and skipped; 16 replies' worth of them are random enough.
    tokens = [[draw.randrange(150_000) for _ in range(TOKENS)] for _ in range(16)]
    logprobs = [[-draw.expovariate(2.0) for _ in range(TOKENS)] for _ in range(16)]
    earlier: list[dict[str, str]] = []
    for number in range(count):
        step, task_index, attempt, turn = number // 128, number // 32 % 4, number // 4 % 8, number % 4
        row = rows[(number // 32) % len(rows)]
        source = row["extraction"]["candidate"]["source"].replace("import torch\n", f"import torch  # {number}\n", 1)
        thinking = ""
        while len(thinking) < 4 * TOKENS:
            thinking += draw.choice(sentences) + " "
        reply = f"<think>{thinking}</think>\n```python\n{source}```"
        earlier = [] if turn == 0 else earlier
        yield placed(
            {
                **row,
                "prompt": {**row["prompt"], "messages": [row["prompt"]["messages"][0], *earlier]},
                "reply": {
                    **row["reply"],
                    "text": reply,
                    "tokens": tokens[number % 16],
                    "logprobs": logprobs[number % 16],
                },
                "extraction": {
                    **row["extraction"],
                    "thinking": thinking,
                    "candidate": {**row["extraction"]["candidate"], "source": source},
                },
            },
            step,
            task_index,
            attempt,
            turn,
        )
        earlier = [
            *earlier,
            {"role": "assistant", "content": f"```python\n{source}```"},
            {"role": "user", "content": row["feedback"]},
        ]


def write_run(model: Path, run: Path, rows: Iterator[dict[str, Any]]) -> None:
    """A run with these samples, and a credit and a metrics row for each sample and step."""
    run.mkdir(parents=True)
    for name in ("recipe.yaml", "provenance.json", "state.json"):
        shutil.copy(model / name, run)
    metrics = orjson.loads((model / "metrics.jsonl").read_bytes().splitlines()[-1])
    steps = 0
    with (run / "samples.jsonl").open("wb") as samples, (run / "credits.jsonl").open("wb") as credited:
        for row in rows:
            samples.write(orjson.dumps(row) + b"\n")
            credit = {"sample": row["sample"], "return": 1.0, "advantage": 0.1, "masked": False, "filtered": False}
            credited.write(orjson.dumps(credit) + b"\n")
            steps = max(steps, row["step"] + 1)
    (run / "metrics.jsonl").write_bytes(b"".join(orjson.dumps({**metrics, "step": i}) + b"\n" for i in range(steps)))


def measure_report(run: Path) -> dict[str, float]:
    start = time.perf_counter()
    process = subprocess.Popen([KERNELRL, "report", run, "--max-mb", "60"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return {
        "report_s": round(time.perf_counter() - start, 2),
        "report_cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "report_memory_mb": round(usage.ru_maxrss / 1000, 1),
        "report_mb": round((run / "report.html").stat().st_size / 1e6, 1),
    }


def measure_page(page: Page, address: str, run: Path) -> dict[str, Any]:
    page.goto(address, wait_until="commit")
    first = page.evaluate(MOUNTED)
    page.evaluate("location.hash = '#/samples'")
    page.wait_for_selector(".sample")
    filters = ["outcome=incorrect", "outcome=incorrect&turn=0", "task=a", "step=0-3", "set=train&sort=score"]
    changes = [page.evaluate(FILTERED, f"#/samples?{one}") for one in filters]
    return {
        "first_view_ms": round(first),
        "filter_ms": [round(one) for one in changes],
        **measure_episodes(page, run),
    }


def measure_episodes(page: Page, run: Path) -> dict[str, Any]:
    draw = random.Random(1)
    places = [row["sample"].rsplit(".", 1)[0] for row in map(orjson.loads, (run / "samples.jsonl").open("rb"))]
    opened = []
    for place in draw.sample(list(dict.fromkeys(places)), 20):
        opened.append(page.evaluate(OPENED, f"#/episode/train/{place}"))
    return {"open_episode_ms": {"median": round(statistics.median(opened)), "max": round(max(opened))}}


def measure_view(page: Page, run: Path) -> dict[str, Any]:
    """Opening of episodes, and the CPU time of the server beside a run that records samples."""
    process = subprocess.Popen(
        [KERNELRL, "view", run.name, "--port", "0"], cwd=run.parents[1], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        page.goto(address, wait_until="commit")
        first = page.evaluate(MOUNTED)
        opened = measure_episodes(page, run)
        page.evaluate("location.hash = '#/samples'")
        page.wait_for_selector(".sample")
        ended = threading.Event()
        rows = (run / "samples.jsonl").open("rb").readlines(20_000_000)

        def record() -> None:
            number = 0
            with (run / "samples.jsonl").open("ab") as samples:
                while not ended.wait(0.1):
                    row = placed(orjson.loads(rows[number % len(rows)]), 10_000 + number, 0, 0, 0)
                    samples.write(orjson.dumps(row) + b"\n")
                    samples.flush()
                    number += 1

        writer = threading.Thread(target=record)
        writer.start()
        server = psutil.Process(process.pid)
        before = server.cpu_times()
        page.wait_for_timeout(CPU_SECONDS * 1000)
        after = server.cpu_times()
        shown = page.locator(".count").inner_text()
        ended.set()
        writer.join()
        used = after.user + after.system - before.user - before.system
        return {
            "view_in_chromium": {"first_view_ms": round(first), **opened},
            "view_cpu_share": round(used / CPU_SECONDS, 4),
            "view_shows": shown,
        }
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
