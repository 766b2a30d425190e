"""The metadata of all distributions: one version, one licence, types, extras and lower bounds that agree."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from kernelrl_core.planning.load import load_recipe
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.problems import RecipeError
from kernelrl_core.version import API_VERSION, __version__

ROOT = Path(__file__).parents[1]
PROJECTS = [ROOT, *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))]
CONTAINERFILE = (ROOT / "Containerfile").read_text()

each_project = pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)


@cache
def settings(project: Path) -> dict[str, Any]:
    return tomllib.loads((project / "pyproject.toml").read_text())


def extras(name: str) -> dict[str, list[str]]:
    """The extras of a distribution of this repository."""
    project = ROOT if name == "kernelrl" else ROOT / "plugins" / name
    found: dict[str, list[str]] = settings(project)["project"].get("optional-dependencies", {})
    return found


def expanded(requirements: Iterable[str], open_extras: tuple[str, ...] = ()) -> Iterator[Requirement]:
    """Requirements, with the extras of the core replaced by what they list.

    Raises:
        AssertionError: an extra contains itself.
    """
    for requirement in map(Requirement, requirements):
        if requirement.name == "kernelrl":
            for extra in requirement.extras:
                assert extra not in open_extras, f"the extra {extra} contains itself"
                yield from expanded(extras("kernelrl")[extra], (*open_extras, extra))
        else:
            yield requirement


def distributions(*requirements: str) -> set[str]:
    """Distributions of this repository that requirements install, with their dependencies."""
    found: set[str] = set()
    waiting = {requirement.name for requirement in expanded(requirements)}
    while waiting:
        name = waiting.pop()
        if name.startswith("kernelrl-") and name not in found:
            found.add(name)
            waiting |= {Requirement(text).name for text in settings(ROOT / "plugins" / name)["project"]["dependencies"]}
    return found


@each_project
def test_the_version_comes_from_the_core(project: Path) -> None:
    assert settings(project)["project"]["dynamic"] == ["version"]
    path = project / settings(project)["tool"]["hatch"]["version"]["path"]
    assert path.resolve() == ROOT / "kernelrl_core/version.py"


@each_project
def test_the_licence_is_that_of_the_repository(project: Path) -> None:
    assert settings(project)["project"]["license-files"] == ["LICENSE"]
    assert (project / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@each_project
def test_packages_declare_their_types(project: Path) -> None:
    packages = settings(project)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert [package for package in packages if not (project / package / "py.typed").is_file()] == []


@each_project
def test_a_requirement_within_the_repository_admits_its_version(project: Path) -> None:
    """Plugins pin the version of the interface, as `kernelrl plugins new` writes it."""
    major, minor = map(int, API_VERSION.split("."))
    pin = SpecifierSet(f">={API_VERSION},<{major}.{minor + 1}")
    declared = settings(project)["project"]
    for text in (*declared.get("dependencies", ()), *(t for extra in extras(declared["name"]).values() for t in extra)):
        requirement = Requirement(text)
        if requirement.name.startswith("kernelrl"):
            assert requirement.extras <= extras(requirement.name).keys(), text
            if project != ROOT:
                assert requirement.specifier == pin, text
    assert Version(__version__) in pin


def test_no_extra_contains_itself() -> None:
    for extra in extras("kernelrl"):
        assert list(expanded([f"kernelrl[{extra}]"])), extra


def test_the_lowest_version_of_a_dependency_is_the_same_everywhere() -> None:
    """The tests run with the lowest versions of the core; a lower one in a plugin would promise more than was run."""
    core = {r.name: r.specifier for r in map(Requirement, settings(ROOT)["project"]["dependencies"])}
    for project in PROJECTS[1:]:
        for requirement in map(Requirement, settings(project)["project"]["dependencies"]):
            assert requirement.specifier == core.get(requirement.name, requirement.specifier), project


@pytest.mark.parametrize(
    ("recipe", "wanted"),
    [
        ("quickstart", "quickstart"),
        ("quickstart_cpp", "quickstart"),
        ("smollm2_gpu", "smollm2"),
        ("quickstart_raicl", "quickstart,retrieval"),
        ("tinker_local", "quickstart,tinker-local"),
        ("kevin", "cuda,loggers,tinker"),
        ("kevin_triton_raicl", "loggers,retrieval,tinker,triton"),
        ("kevin_modal", "cuda,loggers,modal,tinker"),
        ("hip_multi_turn", "hip,loggers,tinker"),
    ],
)
def test_extras_install_what_a_recipe_needs(recipe: str, wanted: str) -> None:
    with pytest.raises(RecipeError) as refused:
        load_recipe(recipe, registry=Registry(()))
    missing = set(re.findall(r"pip install (kernelrl-[\w-]+)", str(refused.value)))
    assert missing
    assert missing <= distributions(f"kernelrl[{wanted}]")


def test_the_page_of_installation_lists_every_extra() -> None:
    text = (ROOT / "docs/installation.md").read_text()
    assert [extra for extra in extras("kernelrl") if f"`{extra}`" not in text] == []


def third_party(requirements: Iterable[tuple[str, Iterable[str]]]) -> set[str]:
    """Dependencies outside of this repository of distributions with extras."""
    found: set[str] = set()
    for name, named in requirements:
        project = settings(ROOT if name == "kernelrl" else ROOT / "plugins" / name)["project"]
        texts = [*project["dependencies"], *(text for extra in named for text in extras(name)[extra])]
        found |= {canonicalize_name(Requirement(text).name) for text in texts}
    return {name for name in found if not name.startswith("kernelrl")}


def required() -> Iterator[tuple[str, set[str]]]:
    """Distribution and extras of each line of requirements.txt."""
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        if line.startswith("-e "):
            folder, _, named = line.removeprefix("-e ").partition("[")
            yield Path(folder).name or "kernelrl", set(named.rstrip("]").split(",")) - {""}


def test_constraints_pin_every_dependency_that_requirements_install() -> None:
    lines = (line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#"))
    assert third_party(required()) - {canonicalize_name(Requirement(line).name) for line in lines} == set()


def test_the_container_installs_every_wheel_with_the_pinned_versions() -> None:
    """`*.whl` are the wheels of `make dist`, so of all distributions; extras are those of requirements.txt."""
    (copied,) = re.findall(r"^COPY (.+) /opt/kernelrl/$", CONTAINERFILE, re.M)
    assert copied.split() == ["constraints.txt", "dist/*.whl"]
    assert (ROOT / ".dockerignore").read_text().split() == ["*", *(f"!{name}" for name in copied.split())]
    (named,) = re.findall(r"pip install .*--constraint constraints\.txt \./\*\.whl '(.+)'$", CONTAINERFILE, re.M)
    wanted = [("kernelrl", Requirement(named).extras), *((r.name, r.extras) for r in expanded([named]) if r.extras)]
    wanted += [(project.name, ()) for project in PROJECTS[1:]]
    assert third_party(required()) - third_party(wanted) <= third_party([("kernelrl", {"dev"})])


def test_containers_have_one_version_of_cuda() -> None:
    image = (ROOT / "plugins/kernelrl-plugin-modal/src/kernelrl_plugin_modal/image.py").read_text()
    base = r"nvidia/cuda:([\d.]+)-devel"
    assert re.findall(base, CONTAINERFILE) == re.findall(base, image)
