from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kernelrl_command_server import CommandServer
from kernelrl_service_process import Services

from kernelrl_core.api.components import registry

TESTS = Path(__file__).parents[3] / "tests"


@pytest.fixture
def services(tmp_path: Path, command_server: CommandServer) -> Iterator[Services]:
    """Starts servers with the evaluator of the fakes."""
    pytest.importorskip("kernelrl_service")
    with Services(command_server, tmp_path, "--evaluator", "fake", "--tasks", "fake") as made:
        yield made


@pytest.fixture
def fake_plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes the fake plugin importable during the test only: other tests count the plugins."""
    monkeypatch.syspath_prepend(TESTS / "fakes")
    registry.cache_clear()
    yield
    monkeypatch.undo()
    registry.cache_clear()
