"""Rules that the repository itself must follow."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
BELOW_THE_CORE = {"kernelrl-devices", "kernelrl-sources"}
"""Libraries that the core depends on."""
SHARED_BY = {
    # The server wraps the engine of policy `torch` in HTTP; recipes do not use it.
    "kernelrl-tinker-server": "kernelrl_plugin_torch",
    # `export --as kernelbench` needs the plugin; other formats do not.
    "kernelrl-report": "kernelrl_plugin_kernelbench",
    # Scores by a running server use the client of evaluator `http`.
    "kernelrl-adapters": "kernelrl_plugin_http",
}
"""Distribution -> the plugin that it may import."""
MACHINE_PATHS = tuple(f"/{name}/" for name in ("work", "root", "opt/wheels"))
HEAVY = {
    "datasets",
    "faiss",
    "inspect_ai",
    "modal",
    "numpy",
    "openai",
    "peft",
    "ray",
    "sentence_transformers",
    "tensorboard",
    "tinker",
    "tinker_cookbook",
    "tokenizers",
    "torch",
    "trackio",
    "transformers",
    "triton",
    "trl",
    "verifiers",
    "verl",
    "wandb",
}


def imported_modules(source: str) -> set[str]:
    """Top-level names of all import statements, including those inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_requirements_install_every_distribution_editable() -> None:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    listed = {line.removeprefix("-e ./").partition("[")[0] for line in lines if line.startswith("-e ./")}
    assert listed == {f"plugins/{folder.name}" for folder in DISTRIBUTIONS}


def test_the_extra_all_names_every_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]["all"]) == {folder.name for folder in DISTRIBUTIONS}


@pytest.mark.parametrize("folder", DISTRIBUTIONS, ids=lambda folder: folder.name)
def test_a_distribution_is_named_after_its_folder_package_and_entry_point(folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    package = folder.name.replace("-", "_")
    assert project["name"] == folder.name
    assert (folder / "src" / package / "__init__.py").is_file()
    if folder.name not in BELOW_THE_CORE:
        assert any(dependency.startswith("kernelrl>=") for dependency in project["dependencies"])
    if folder.name.startswith("kernelrl-plugin-"):
        name = folder.name.removeprefix("kernelrl-plugin-")
        assert project["entry-points"]["kernelrl"] == {name: package}


def test_plugins_pin_the_core_as_the_page_of_stability_states() -> None:
    from kernelrl_core.version import API_VERSION, __version__

    major, minor = map(int, API_VERSION.split("."))
    pin = f"kernelrl>={API_VERSION},<{major}.{minor + 1}"
    assert __version__.startswith(f"{API_VERSION}.")
    assert f'dependencies = ["{pin}"]' in (ROOT / "docs/stability.md").read_text()
    for folder in (folder for folder in DISTRIBUTIONS if folder.name not in BELOW_THE_CORE):
        dependencies = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["dependencies"]
        assert pin in [found.partition("[")[0] + found.partition("]")[2] for found in dependencies], folder


def test_core_imports_nothing_heavy_and_no_plugin() -> None:
    for path in ROOT.glob("kernelrl_core/**/*.py"):
        names = imported_modules(path.read_text())
        assert not names & HEAVY, path
        assert not {name for name in names if name.startswith(("kernelrl_plugin", "kernelrl_judge"))}, path


@pytest.mark.parametrize("path", sorted(ROOT.glob("plugins/*/src/*/__init__.py")), ids=lambda path: path.parent.name)
def test_a_plugin_package_imports_only_the_core(path: Path) -> None:
    assert imported_modules(path.read_text()) <= {"__future__", "kernelrl_core"}


def test_bundled_plugins_depend_on_each_other_only_through_the_judge() -> None:
    for folder in DISTRIBUTIONS:
        own = folder.name.replace("-", "_")
        for path in (path for path in folder.glob("src/**/*.py") if "samples" not in path.parts):
            others = {name for name in imported_modules(path.read_text()) if name.startswith("kernelrl_plugin_")}
            assert others <= {own, SHARED_BY.get(folder.name, own)}, path


def test_listing_plugins_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from kernelrl_core.plugins.registry import registry\n"
        "assert registry().components('policies')\n"
        f"print(sorted(set(sys.modules) & {HEAVY!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_hook_is_documented() -> None:
    from kernelrl_core.interfaces.hooks import KINDS

    page = (ROOT / "docs/plugins.md").read_text()
    assert [kind for kind in KINDS if f"`kernelrl_{kind}`" not in page] == []


@pytest.mark.skipif(shutil.which("git") is None, reason="git lists the files")
def test_the_repository_names_no_machine_path() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    found = []
    for path in (ROOT / name for name in done.stdout.split()):
        if path.suffix in (".py", ".md", ".yaml", ".toml", ".json", ".jsonl", ".txt", ".svg") and path.is_file():
            text = path.read_text(errors="replace")
            found += [f"{path}: {place}" for place in MACHINE_PATHS if place in text]
    assert found == []


def test_results_contain_no_path_of_the_machine_that_made_them() -> None:
    results = [path for path in (ROOT / "benchmarks/results").iterdir() if path.suffix in (".json", ".jsonl")]
    assert [path.name for path in results if "site-packages/" in path.read_text()] == []
    assert [path.name for path in results if "Traceback (most recent" in path.read_text()] == []


def test_benchmarks_share_one_provenance() -> None:
    """Results then always name the revision, also those of benchmarks that record further facts of the machine."""
    spec = importlib.util.spec_from_file_location("provenance", ROOT / "benchmarks/provenance.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    facts = module.provenance("attrs", "no-such-distribution")
    assert {"date", "load_at_start", "cpu", "cores", "python", "kernelrl", "attrs", "git"} <= facts.keys()
    assert facts["no-such-distribution"] == "none"
    if shutil.which("git") is not None and (ROOT / ".git").exists():
        assert re.fullmatch("[0-9a-f]{40}", facts["git"]["revision"])
        assert isinstance(facts["git"]["changed"], bool)
    others = [path for path in (ROOT / "benchmarks").glob("*.py") if path.name != "provenance.py"]
    assert [path.name for path in others if "/proc/cpuinfo" in path.read_text()] == []


def test_tests_of_plugins_import_the_api_and_the_test_kit_only() -> None:
    """As those of a third-party plugin do; the kit and the experiments are made of the core's own parts."""
    exempt = {"kernelrl-experiments", "kernelrl-testing"}
    found = []
    for folder in DISTRIBUTIONS:
        for path in () if folder.name in exempt else sorted((folder / "tests").rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                private = [name for name in modules if re.match(r"kernelrl_core\.(?!api\b)", name)]
                found += [f"{path.relative_to(ROOT)}:{node.lineno} {name}" for name in private]
    assert found == []
