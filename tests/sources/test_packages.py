"""The user's package: which files travel, relative imports, and imports of what does not travel."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kernelrl_core.errors import UsageError
from kernelrl_core.sources import packages
from kernelrl_core.sources.packages import (
    absolute_imports,
    imported_texts,
    module_name,
    read_package,
    require_importable,
    top_modules,
)
from kernelrl_core.types.packages import package_problem


def write(root: Path, *names: str, text: str = "") -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_sources_and_small_data_travel_with_their_paths(tmp_path: Path) -> None:
    write(tmp_path, "own/__init__.py", "own/rms.py", "own/csrc/rms.cu", "own/sizes.json", text="x")
    write(
        tmp_path,
        ".git/a.py",
        "own/__pycache__/a.py",
        "venv/pyvenv.cfg",
        "venv/lib/a.py",
        "own/fast.so",
        "a.egg-info/a.py",
    )
    (tmp_path / "own/data.txt").write_bytes(b"\xff\xfe\x00")
    files = read_package(str(tmp_path))
    assert files == dict.fromkeys(("own/__init__.py", "own/rms.py", "own/csrc/rms.cu", "own/sizes.json"), "x")
    assert top_modules(files) == ("own",)


def test_a_package_travels_under_its_name_with_those_that_contain_it(tmp_path: Path) -> None:
    write(tmp_path, "own/__init__.py", "own/ops/__init__.py", "own/ops/rms.py", "own/other.py")
    assert set(read_package(str(tmp_path / "own/ops"))) == {"own/__init__.py", "own/ops/__init__.py", "own/ops/rms.py"}


def test_a_directory_that_is_too_large_is_refused_with_its_largest_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "MAX_PACKAGE_BYTES", 100)
    write(tmp_path, "own/a.py", "data/large.csv", text="x" * 60)
    write(tmp_path, "data/larger.csv", text="x" * 70)
    with pytest.raises(UsageError, match="the largest part is data"):
        read_package(str(tmp_path))


@pytest.mark.parametrize(("name", "message"), [("gone", "no such directory"), ("empty", r"no file \*\.py in it")])
def test_a_directory_without_a_package_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=message):
        read_package(str(tmp_path / name))


@pytest.mark.parametrize("path", ["../a.py", "/a.py", "a/../b.py", "", ".", "a\0.py", "a//b.py"])
def test_a_path_outside_of_the_directory_is_a_problem(path: str) -> None:
    assert package_problem({path: ""})


def test_relative_imports_become_absolute_at_their_lines(tmp_path: Path) -> None:
    write(tmp_path, "own/__init__.py", "own/ops/rms.py", "own/ops/__init__.py")
    source = (
        "from .utils import (\n    a,\n)\nfrom .. import b\nif True:\n    from . import c  # c\nfrom torch import d\n"
    )
    module = module_name(str(tmp_path / "own/ops/rms.py"), str(tmp_path / "own"))
    assert module == "own.ops.rms"
    changed = absolute_imports(source, module)
    assert changed == (
        "from own.ops.utils import (\n    a,\n)\nfrom own import b\nif True:\n    from own.ops import c  # c\n"
        "from torch import d\n"
    )
    assert ast.parse(changed)


def test_modules_that_a_source_imports_are_found_through_others() -> None:
    files = {"own/__init__.py": "", "own/rms.py": "from .utils import a", "own/utils.py": "# utils", "own/b.py": "# b"}
    assert set(imported_texts("from own.rms import rms_norm", files)) == {"", "from .utils import a", "# utils"}
    assert imported_texts("import torch", files) == []


@pytest.mark.parametrize(
    "source", ["from own.rms import x", "import os, own", "from .rms import x", "from . import rms"]
)
def test_an_import_of_a_package_that_does_not_travel_names_the_line_and_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    write(tmp_path, "src/own/__init__.py", "src/own/kernel.py")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"src/own/kernel.py:2: it imports \S+, and --path") as caught:
        require_importable(f"import torch\n{source}\n", "src/own/kernel.py", {})
    assert caught.value.fix == "--path src"


@pytest.mark.parametrize("source", ["import numpy", "import json", "from own.rms import x", "import nowhere_at_all"])
def test_installed_travelling_and_unknown_modules_are_no_mistake_of_the_user(tmp_path: Path, source: str) -> None:
    write(tmp_path, "own/__init__.py")
    require_importable(source, str(tmp_path / "kernel.py"), {"own/rms.py": ""})
