"""Importing a candidate's file."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
from pathlib import Path

import pytest

from kernelrl_judge.backend import CandidateRunner, import_candidate

SOURCE = (
    "def f():\n    return 1\n\n\nwith open(__file__, 'w') as file:\n    file.write('def f():\\n    return 22\\n')\n"
)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_functions_have_the_source_that_was_loaded_whatever_becomes_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(SOURCE)
    monkeypatch.setitem(sys.modules, "candidate", None)
    module = import_candidate(str(path))
    if is_deleted:
        os.unlink(path)
    linecache.checkcache()
    assert inspect.getsource(module.f) == "def f():\n    return 1\n"


def test_a_source_in_another_encoding_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text("# coding: utf-7\n")
    with pytest.raises(SyntaxError, match="write it in UTF-8"):
        import_candidate(str(path))


def test_a_candidate_is_loaded_as_its_class_and_kept_as_the_module_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "candidate.py"
    path.write_text("class ModelNew:\n    pass\n")
    monkeypatch.setitem(sys.modules, "candidate", None)
    assert CandidateRunner().load(str(path), {}) is sys.modules["candidate"].ModelNew


def test_a_candidate_without_its_class_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "candidate.py"
    path.write_text("class Model:\n    pass\n")
    monkeypatch.setitem(sys.modules, "candidate", None)
    with pytest.raises(AttributeError, match="ModelNew"):
        CandidateRunner().load(str(path), {})
