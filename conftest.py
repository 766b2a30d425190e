"""What all tests have in common: a cache that begins empty and is not the user's, and their order."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelrl_core.interfaces.requirements import gpu_vendors


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache of this run of the tests: precompiled headers, which take half a minute each, are made once.

    A test that needs an empty one sets `KERNELRL_CACHE_DIR` itself.
    """
    base = tmp_path_factory.getbasetemp()
    # Several processes of pytest-xdist share one.
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernelrl-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELRL_CACHE_DIR", str(directory))
        yield directory


@pytest.fixture(scope="module")
def one_judge_at_once() -> Iterator[None]:
    """Under pytest-xdist an evaluator has one judge: the other processors have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        # Beside a GPU the processors are shared out by what is timed there.
        if "PYTEST_XDIST_WORKER" in os.environ and not gpu_vendors():
            patch.setattr(os, "sched_getaffinity", lambda pid: {0})
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: many tests wait for processes, and some for a clock."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return processors + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, of these the ones with most tests: no process of pytest-xdist ends with one."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    tests = Counter(item.path for item in items if item.path in slow)
    items.sort(key=lambda item: -tests[item.path])
