"""The core and a bundled plugin work when installed from wheels into an environment without torch."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PLUGIN = "kernelrl-plugin-hip"
LIBRARIES = ("kernelrl-devices", "kernelrl-sources", "kernelrl-sandbox", "kernelrl-build", "kernelrl-judge")
PROJECTS = (ROOT, *(ROOT / "plugins" / name for name in (*LIBRARIES, PLUGIN)))


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def dependencies(name: str) -> Iterator[metadata.Distribution]:
    """Direct and indirect dependencies of a distribution, without extras."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [name]
    while waiting:
        for requirement in map(Requirement, metadata.requires(waiting.pop()) or ()):
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if wanted and requirement.name not in found:
                found[requirement.name] = metadata.distribution(requirement.name)
                waiting.append(requirement.name)
    yield from found.values()


def script() -> ModuleType:
    """The program that builds and checks distributions."""
    spec = importlib.util.spec_from_file_location("dist", ROOT / "scripts/dist.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DIST = script()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, tuple[Path, Path]]:
    """Project -> wheel and source distribution."""
    for module in ("build", "hatchling"):
        pytest.importorskip(module, reason=f"building a wheel offline needs {module} in this environment")
    folder = tmp_path_factory.mktemp("built")
    return {project: DIST.build(project, folder) for project in PROJECTS}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, built: dict[Path, tuple[Path, Path]]) -> Path:
    """Programs of a virtual environment with all wheels and the dependencies of the core only."""
    folder = tmp_path_factory.mktemp("wheels")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    wheels = [str(wheel) for wheel, _ in built.values()]
    pip("--python", str(folder / "env/bin/python"), "install", "--quiet", "--no-deps", "--no-index", *wheels)
    # Nothing is downloaded: the dependencies of the core are linked from the environment of the tests.
    packages = folder / "packages"
    packages.mkdir()
    for distribution in dependencies("kernelrl"):
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            (packages / top).symlink_to(str(distribution.locate_file(top)))
    (site_packages,) = folder.glob("env/lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(f"{packages}\n")
    return folder / "env/bin"


def call(environment: Path, folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": f"{environment}:/usr/bin:/bin", "HOME": str(folder), "KERNELRL_CACHE_DIR": str(folder / "c")}
    libraries = {name: value for name, value in os.environ.items() if name.startswith("LD_")}
    return subprocess.run(
        [str(environment / program), *arguments],
        cwd=folder,
        env={**libraries, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_heavy_can_be_imported(environment: Path, tmp_path: Path) -> None:
    for module in ("torch", "numpy", "triton"):
        done = call(environment, tmp_path, "python", "-c", f"import {module}")
        assert f"No module named '{module}'" in done.stderr
    where = call(environment, tmp_path, "python", "-c", "import kernelrl_core as k; print(k.__file__)")
    assert where.stdout.startswith(str(environment.parent)), where.stderr


def test_the_plugin_is_listed(environment: Path, tmp_path: Path) -> None:
    done = call(environment, tmp_path, "kernelrl", "plugins", "list", "--json")
    assert done.returncode == 0, done.stderr
    states = {plugin["name"]: plugin["state"] for plugin in json.loads(done.stdout)["plugins"]}
    assert states == {"core": "ok", "hip": "ok"}
    assert call(environment, tmp_path, "kernelrl", "plugins", "list").returncode == 0


def test_plugins_show_lists_options_and_the_missing_torch(environment: Path, tmp_path: Path) -> None:
    done = call(environment, tmp_path, "kernelrl", "plugins", "show", "hip", "--json")
    assert done.returncode == 0, done.stderr
    (described,) = json.loads(done.stdout)["components"]
    assert [option["name"] for option in described["options"]] == ["arch", "mode", "flags"]
    assert ["torch" in need["what"] for need in described["missing"]] == [True]
    shown = call(environment, tmp_path, "kernelrl", "plugins", "show", "hip")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("hip  kernelrl-plugin-hip ")


def test_validate_names_the_plugins_to_install(environment: Path, tmp_path: Path) -> None:
    done = call(environment, tmp_path, "kernelrl", "validate", "smoke")
    assert done.returncode == 3, done.stderr
    assert "pip install kernelrl-plugin-torch" in done.stderr


tracked = pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(), reason="git lists the files of the repository"
)


@tracked
@pytest.mark.parametrize("project", DIST.projects(), ids=lambda project: project.name)
def test_no_package_has_tests_or_caches(project: Path) -> None:
    assert [name for name in DIST.package_files(project) if DIST.is_superfluous(name)] == []


@pytest.mark.parametrize("name", ["kernelrl_core/tests/test_a.py", "kernelrl_core/__pycache__/a.pyc"])
def test_a_test_or_a_cache_in_a_package_is_found(name: str) -> None:
    assert DIST.is_superfluous(name)


@tracked
def test_distributions_hold_the_files_of_the_repository(built: dict[Path, tuple[Path, Path]]) -> None:
    for project, (wheel, sdist) in built.items():
        assert list(DIST.wheel_problems(wheel, project)) == []
        assert list(DIST.sdist_problems(sdist, project)) == []


@tracked
def test_each_difference_of_a_wheel_is_named(built: dict[Path, tuple[Path, Path]], tmp_path: Path) -> None:
    project = PROJECTS[-1]
    wheel = built[project][0]
    with ZipFile(wheel) as whole, ZipFile(tmp_path / wheel.name, "w") as changed:
        for name in whole.namelist():
            text = whole.read(name)
            if name.endswith("/METADATA"):
                text = text.replace(b"Version: 0", b"Version: 7").replace(b"License-Expression: Apache-2.0\n", b"")
            if not name.endswith(("/py.typed", "/LICENSE")):
                changed.writestr(name, text)
        changed.writestr("kernelrl_plugin_hip/tests/test_hip.py", "")
    assert sorted(DIST.wheel_problems(tmp_path / wheel.name, project)) == [
        "LICENSE is missing or differs from that of the repository",
        "kernelrl_plugin_hip/py.typed is missing",
        "kernelrl_plugin_hip/tests/test_hip.py is not a file of the repository",
        "metadata: kernelrl-plugin-hip 7.1.0, expected version 0.1.0",
        "metadata: no license_expression",
    ]
