"""The table of servers and calls in the page is that of the results, and `tinker-server` still has its column."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks/results/tinker_servers.json"
PAGE = ROOT / "plugins/kernelrl-plugin-tinker/README.md"


@pytest.fixture(scope="module")
def program() -> Any:
    """The module `benchmarks/tinker_servers.py`."""
    folder = str(ROOT / "benchmarks")
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location("tinker_servers", f"{folder}/tinker_servers.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return json.loads(RESULTS.read_text(encoding="utf-8"))["servers"]


def test_the_page_has_the_table_of_the_results(program, results) -> None:
    assert program.table(results) in PAGE.read_text(encoding="utf-8")


def test_the_results_of_tinker_server_are_those_of_this_revision(program, results, server) -> None:
    def without_reasons(answers: dict[str, str]) -> dict[str, str]:
        return {call: answer.partition(":")[0] for call, answer in answers.items()}

    now = asyncio.run(program.survey(server.base_url, server.api_key))
    assert without_reasons(now) == without_reasons(results["tinker-server"]["answers"])
