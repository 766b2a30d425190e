"""The author's guide: its pages match their sources, and its first plugin works as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import reference_pages
import yaml
from docpages import findings

from kernelrl_core.types import Rule

ROOT = Path(__file__).parents[2]
MAX_LINES = 25
"""Of Python and TOML in the first plugin, without empty lines and tests."""


GENERATED = reference_pages.generated()


@pytest.mark.parametrize("path", sorted(GENERATED), ids=lambda path: path.name)
def test_a_page_matches_its_source(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == GENERATED[path], "run: python scripts/reference_pages.py"


def test_folders_of_generated_pages_have_no_other_page() -> None:
    folders = {path.parent for path in GENERATED} - {ROOT / "docs"}
    assert {path for folder in folders for path in folder.iterdir()} == {
        path for path in GENERATED if path.parent in folders
    }


def first_plugin() -> dict[str, str]:
    """Path -> text of the files that the first part of the guide shows."""
    return files_of("Your first plugin")


def files_of(title: str) -> dict[str, str]:
    """Path -> text of the files that a section of the guide shows."""
    section = reference_pages.GUIDE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
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
    expected = re.search(r"The second command prints `([^`]*)`", reference_pages.GUIDE.read_text(encoding="utf-8"))
    assert expected is not None
    assert kernelrl(installed, "plugins", "check", "no_sleep") == f"{expected[1]}\n"
    summary = re.search(r"begins with `(\d+ passed)`", reference_pages.GUIDE.read_text(encoding="utf-8"))
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


@pytest.mark.parametrize(("by", "rule"), findings.declared_rules(), ids=lambda value: getattr(value, "id", None))
def test_every_finding_has_a_complete_entry(by: str, rule: Rule) -> None:
    assert all((rule.statement, rule.reason, rule.example, rule.look_alike, rule.misses)), by
