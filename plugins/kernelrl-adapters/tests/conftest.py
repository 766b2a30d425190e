from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelrl_adapters.shared import recipe_of
from kernelrl_core.plugins.registry import registry

TESTS = Path(__file__).parents[3] / "tests"

sys.path.append(str(TESTS / "servers"))


@pytest.fixture(autouse=True)
def fake_plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes the fake plugin importable during the test only: other tests count the plugins."""
    monkeypatch.syspath_prepend(TESTS / "fakes")
    _forget()
    yield
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    registry.cache_clear()
    recipe_of.cache_clear()
