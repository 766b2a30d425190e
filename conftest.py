"""Fixtures of the test kit for all tests, and the order of the tests."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from kernelrl_core.api.config import gpu_vendors

sys.path.append(str(Path(__file__).parent / "tests/servers"))

from kernelrl_command_server import CommandServer

pytest_plugins = ["kernelrl_testing.fixtures"]

# The duration of a test depends on the machine and its load; it is no property of the code. With fixed examples, a
# commit passes or fails everywhere alike; `--hypothesis-profile=explore` draws new ones.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("kernelrl", settings.get_profile("explore"), derandomize=True, max_examples=50)
settings.load_profile("kernelrl")

# A service that this user runs must not evaluate the kernels of tests.
os.environ["KERNELRL_SERVICE"] = ""

# A shell starts background jobs with SIGINT ignored, and processes inherit that. Tests of Ctrl-C need its usual effect.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def kept_headers(kernelrl_cache: Path, pytestconfig: pytest.Config) -> None:
    """Keep precompiled C++ headers, a minute of CPU time each, in pytest's cache directory between runs of the tests.

    A header serves one toolchain and is removed two weeks after its last use. Everything else in the cache directory of
    the session starts empty.
    """
    cache = getattr(pytestconfig, "cache", None)
    if cache is not None:
        builds = kernelrl_cache / "builds"
        builds.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # made by another process of pytest-xdist
            (builds / "toolchains").symlink_to(cache.mkdir("kernelrl-toolchains"))


@pytest.fixture(scope="session")
def command_server() -> Iterator[CommandServer]:
    """Starts `kernelrl` commands as processes without the cost of their imports."""
    with CommandServer() as server:
        yield server


@pytest.fixture(scope="module")
def one_judge_at_once() -> Iterator[None]:
    """Under pytest-xdist an evaluator has one judge, because the other CPU cores run other tests."""
    with pytest.MonkeyPatch.context() as patch:
        # With a GPU, its timing lock decides which CPU cores a judge uses.
        if "PYTEST_XDIST_WORKER" in os.environ and not gpu_vendors():
            patch.setattr(os, "sched_getaffinity", lambda pid: {0})
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are CPU cores: many tests wait for processes, and some for a clock."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return processors + 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The reasons why tests were skipped on this machine, in one line each."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        _, _, reason = report.longrepr
        reasons[str(reason).removeprefix("Skipped: ")] += 1
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped: {count} test{'s' * (count > 1)}: {reason}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, of these the ones with most tests: no process of pytest-xdist ends with one."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    tests = Counter(item.path for item in items if item.path in slow)
    items.sort(key=lambda item: -tests[item.path])
