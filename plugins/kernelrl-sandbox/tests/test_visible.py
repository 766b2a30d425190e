"""The list of paths that a runner sees, from a description of the machine."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from kernelrl_sandbox import visible


def seen(path: Path, environment: dict[str, str] | None = None, *, on_gpu: bool = False) -> bool:
    """Whether a path is in the list, or below a path in it."""
    shown = visible.paths_of_runner(environment or {}, on_gpu=on_gpu)
    return any(str(path) == other or str(path).startswith(f"{other}/") for other in shown)


def made(path: Path) -> Path:
    """An empty file, with the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_no_path_is_below_another_one() -> None:
    shown = visible.paths_of_runner({}, on_gpu=True)
    assert visible.outermost(["/a/b", "/a", "/ab", "/a/b/c"]) == ["/a", "/ab"]
    assert visible.outermost(shown) == shown


def test_python_and_its_standard_library_are_seen() -> None:
    assert seen(Path(sys.executable))
    assert seen(Path(types.__file__))


def test_an_environment_of_python_in_a_project_shows_its_own_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = made(tmp_path / "lib" / "python3" / "site-packages" / "torch" / "__init__.py")
    journal = made(tmp_path / "runs" / "samples.jsonl")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert [seen(module), seen(journal)] == [True, False]


@pytest.mark.parametrize("marker", ["torch-2.0.dist-info/METADATA", None])
def test_a_directory_of_installed_packages_is_seen_with_modules_that_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str | None
) -> None:
    module = made(tmp_path / "later" / "__init__.py")
    if marker:
        made(tmp_path / marker)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert seen(module) is bool(marker)


def test_a_package_that_is_installed_in_place_is_seen_without_its_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = made(tmp_path / "src" / "plugin" / "__init__.py")
    part = made(tmp_path / "elsewhere" / "part" / "code.py")
    journal = made(tmp_path / "samples.jsonl")
    for name, place in (("plugin", module.parent), ("plugin.part", part.parent)):
        package = types.ModuleType(name)
        package.__path__ = [str(place)]
        monkeypatch.setitem(sys.modules, name, package)
    assert [seen(module), seen(part), seen(journal)] == [True, True, False]


def test_a_link_is_seen_with_its_target(tmp_path: Path) -> None:
    library = made(tmp_path / "store" / "libcuda.so")
    (tmp_path / "driver").symlink_to(tmp_path / "store")
    environment = {"LD_LIBRARY_PATH": f"/nowhere:{tmp_path / 'driver'}"}
    assert [seen(tmp_path / "driver", environment), seen(library, environment)] == [True, True]


def test_a_toolkit_that_a_variable_names_is_seen_without_other_files(tmp_path: Path) -> None:
    compiler = made(tmp_path / "bin" / "nvcc")
    library = made(tmp_path / "lib64" / "libcudart.so")
    notes = made(tmp_path / "notes.txt")
    environment = {"CUDA_HOME": str(tmp_path)}
    assert [seen(path, environment) for path in (compiler, library, notes)] == [True, True, False]


@pytest.mark.parametrize("name", ["HOME", "TMPDIR", "PWD", "PYTHONPATH", "TRITON_CACHE_DIR", "KERNELRL_CACHE_DIR"])
def test_directories_of_users_and_caches_are_not_seen(tmp_path: Path, name: str) -> None:
    assert not seen(tmp_path, {name: str(tmp_path)})


@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_service_of_shared_gpus_is_seen_on_a_gpu_alone(tmp_path: Path, on_gpu: bool) -> None:
    control = made(tmp_path / "control")
    assert seen(control, {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}, on_gpu=True)
    assert seen(Path("/sys/devices"), on_gpu=on_gpu) is on_gpu


def test_directories_of_the_dynamic_loader_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = made(tmp_path / "driver" / "libcuda.so.1")
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "driver.conf").write_text(f"{library.parent}  # of the driver\n")
    (tmp_path / "ld.so.conf").write_text("include conf.d/*.conf\n")
    monkeypatch.setattr(visible, "_FINDS_LIBRARIES", str(tmp_path / "ld.so.conf"))
    assert seen(library)
