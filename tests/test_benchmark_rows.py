"""The rows of a benchmark, in a file as they come."""

from __future__ import annotations

import importlib.util
import json
import signal
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def rows_class(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    spec = importlib.util.spec_from_file_location("rows", ROOT / "benchmarks/rows.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Rows


def test_an_interrupted_call_keeps_its_rows_and_the_next_one_continues(rows_class: Any, tmp_path: Path) -> None:
    path = tmp_path / "result.json"

    def measure() -> None:
        with rows_class(path, {"cores": 2}, lambda rows: {"count": len(rows)}) as rows:
            rows.add("first", {"seconds": 1})
            rows.add("second", {"seconds": 2})
            raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        measure()
    assert ended.value.code == 130
    document = json.loads(path.read_text())
    assert document["count"] == 2
    assert document["rows"] == {"first": {"seconds": 1}, "second": {"seconds": 2}}
    assert rows_class(path, {"cores": 2}).missing(["first", "second", "third"]) == ["third"]


def test_rows_of_another_machine_form_no_result_with_new_ones(rows_class: Any, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "result.json"
    with rows_class(path, {"cores": 2, "gpu": "A"}) as rows:
        rows.add("first", {})
    assert "first" not in rows_class(path, {"cores": 2, "gpu": "B"})
    assert "another gpu" in capsys.readouterr().err


def test_the_document_is_complete_before_the_call_ends(rows_class: Any, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with rows_class(path, {}) as rows:
        rows.add("first", {})
        assert json.loads(path.read_text())["rows"] == {"first": {}}
