"""The author's guide: its pages match their sources, and its first plugin works as written."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import attrs
import pytest
import yaml

from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_core.recipe.field_docs import field_docs
from kernelrl_core.types import Rule

ROOT = Path(__file__).parents[2]
MAX_LINES = 25
"""Of Python and TOML in the first plugin, without empty lines and tests."""


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plugin_pages", ROOT / "scripts/plugin_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = load_generator()


@pytest.mark.parametrize("path", sorted(PAGES.generated()), ids=lambda path: path.name)
def test_a_page_matches_its_source(path: Path) -> None:
    text = PAGES.generated()[path]
    assert path.read_text(encoding="utf-8") == text, "run: python scripts/plugin_pages.py"


def test_there_is_no_other_page() -> None:
    assert set((ROOT / "docs/plugins").iterdir()) == set(PAGES.generated()) - {PAGES.GUIDE, PAGES.FINDINGS}


@pytest.mark.parametrize("kind", PAGES.KINDS)
def test_every_field_of_a_value_is_documented(kind: str) -> None:
    api = importlib.import_module(KINDS_BY_NAME[kind].api)
    values = [getattr(api, name) for name in api.__all__]
    undocumented = [
        f"{cls.__name__}.{field.name}"
        for cls in values
        if isinstance(cls, type) and attrs.has(cls)
        for field in attrs.fields(cls)
        if not field_docs(cls).get(field.name)
    ]
    assert undocumented == []


def first_plugin() -> dict[str, str]:
    """Path -> text of the files that the first part of the guide shows."""
    return files_of("Your first plugin")


def files_of(title: str) -> dict[str, str]:
    """Path -> text of the files that a section of the guide shows."""
    section = PAGES.GUIDE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"`([\w./]+\.(?:py|toml|yaml))`: (?:(?!\n\n).)*\n\n```\w+\n(.*?)```", section, re.DOTALL))


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The first plugin, in the layout that pip installs."""
    files = first_plugin()
    project = tomllib.loads(files["pyproject.toml"])["project"]
    (entry,) = project["entry-points"]["kernelrl"].items()
    info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in project["dependencies"])
    files |= {f"{info.name}/METADATA": metadata, f"{info.name}/entry_points.txt": f"[kernelrl]\n{' = '.join(entry)}\n"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def call(folder: Path, *arguments: str) -> str:
    """Output of a Python program that must succeed, with the plugin installed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kernelrl(folder: Path, *arguments: str) -> str:
    return call(folder, "-c", "from kernelrl_core.cli.main import main; main()", *arguments)


def test_the_first_plugin_is_short() -> None:
    files = {name: text for name, text in first_plugin().items() if not name.startswith(("test_", "mine"))}
    assert set(files) == {"pyproject.toml", "no_sleep/__init__.py", "no_sleep/checker.py"}
    assert sum(bool(line.strip()) for text in files.values() for line in text.splitlines()) <= MAX_LINES


def test_the_first_plugin_passes_its_check_and_its_tests(installed: Path) -> None:
    expected = re.search(r"The second command prints `([^`]*)`", PAGES.GUIDE.read_text(encoding="utf-8"))
    assert expected is not None
    assert kernelrl(installed, "plugins", "check", "no_sleep") == f"{expected[1]}\n"
    summary = re.search(r"begins with `(\d+ passed)`", PAGES.GUIDE.read_text(encoding="utf-8"))
    assert summary is not None
    assert f"\n{summary[1]} in " in call(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def test_the_recipe_of_the_first_plugin_is_valid(installed: Path) -> None:
    assert yaml.safe_load(first_plugin()["mine.yaml"])["checkers"] == {"sleep": {"use": "no_sleep"}}
    assert kernelrl(installed, "validate", "mine.yaml") == "mine: ok\n"


def test_the_first_plugin_with_an_option_works(installed: Path) -> None:
    files = files_of("Options")
    assert set(files) == {"no_sleep/options.py", "no_sleep/__init__.py", "no_sleep/checker.py", "mine.yaml"}
    for name, text in files.items():
        (installed / name).write_text(text, encoding="utf-8")
    assert kernelrl(installed, "plugins", "check", "no_sleep") == "checkers: no_sleep: loads\n"
    assert kernelrl(installed, "validate", "mine.yaml") == "mine: ok\n"
    assert "max_calls" in kernelrl(installed, "plugins", "show", "no_sleep")
    code = (
        "from kernelrl_core.testing.values import make_candidate, make_task\n"
        "from no_sleep.checker import NoSleep\n"
        "from no_sleep.options import NoSleepConfig\n"
        "checker = NoSleep(NoSleepConfig(max_calls=2))\n"
        "for calls in (2, 3):\n"
        "    print(len(checker.check(make_candidate('time.sleep(1)\\n' * calls), make_task(), None)))\n"
    )
    assert call(installed, "-c", code) == "0\n1\n"


@pytest.mark.parametrize("module", ["contracts", "fakes", "fixtures", "training", "values"])
def test_every_public_function_and_class_of_the_test_kit_has_signature_and_text(module: str) -> None:
    pages = PAGES.generated()
    kit = importlib.import_module(f"kernelrl_core.testing.{module}")
    text = pages[PAGES.GUIDE if module == "values" else PAGES.PAGES / "testing.md"]
    contracts = [cls.__name__ for cls in PAGES.CONTRACTS.values()]
    for node in ast.parse(inspect.getsource(kit)).body:
        name = getattr(node, "name", "")
        if name in kit.__all__ and name not in (*contracts, "ComponentContract"):
            assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            assert re.search(rf"^`(async |class )?{name}\(.*`\n\n\S", text, re.MULTILINE), name
            assert ast.get_docstring(node), name


@pytest.mark.parametrize(("by", "rule"), PAGES.declared_rules(), ids=lambda value: getattr(value, "id", None))
def test_every_finding_has_a_complete_entry(by: str, rule: Rule) -> None:
    assert all((rule.statement, rule.reason, rule.example, rule.look_alike, rule.misses)), by
