"""`kernelrl plugins new`: the package of each kind works as written; nothing is overwritten or half-written."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from kernelrl_command_server import CommandServer
from kernelrl_unpacked_plugins import code_blocks, environment, install

from kernelrl_core.errors import UsageError
from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_testing.contracts import CONTRACTS
from kernelrl_testing.new_command import command
from kernelrl_testing.new_package import MAX_NAME, kind_named, plugin_package, read_sample, require_possible_name

ROOT = Path(__file__).parents[3]
KINDS = tuple(KINDS_BY_NAME)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A new package of each kind, installed."""
    found = {}
    for kind in KINDS:
        found[kind] = tmp_path_factory.mktemp("packages") / f"kernelrl-plugin-made-{kind}"
        done = CliRunner().invoke(command, [kind, f"made-{kind}", "--output", str(found[kind])])
        assert done.exit_code == 0, done.output
        install(found[kind])
    return found


@pytest.fixture(scope="module")
def results(packages: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[str]]:
    """Kind -> endings of the tests of its package: `passed`, `skipped: …` or `failure: …`."""
    folder = tmp_path_factory.mktemp("results")
    tests = [str(project / "tests") for project in packages.values()]
    options = ["-q", "-p", "no:cacheprovider", "-c", str(packages["rewards"] / "pyproject.toml")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--junitxml", str(folder / "results.xml"), *tests],
        env=environment(packages.values()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for case in ElementTree.parse(folder / "results.xml").iter("testcase"):
        (kind,) = (kind for kind in KINDS if f"test_made_{kind}" in case.attrib["classname"])
        found[kind].append("; ".join(f"{ending.tag}: {ending.attrib['message']}" for ending in case) or "passed")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_tests_of_a_new_package_pass_as_written(results: Mapping[str, list[str]], kind: str) -> None:
    assert [ending for ending in results[kind] if not ending.startswith(("passed", "skipped"))] == []
    contract = [name for name in dir(CONTRACTS.get(kind)) if name.startswith("test_")]
    assert results[kind].count("passed") > len(contract) / 2
    assert len(results[kind]) > len(contract)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_package_passes_its_check(
    packages: Mapping[str, Path], kind: str, command_server: CommandServer, tmp_path: Path
) -> None:
    """Without `kernelrl lab`, which evaluates hundreds of kernels."""
    arguments = ("plugins", "check", f"made_{kind}", "--no-lab")
    done = command_server.run(*arguments, cwd=tmp_path, env=environment([packages[kind]]))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "commands"])
def test_the_recipe_in_the_readme_selects_the_new_component(
    packages: Mapping[str, Path], kind: str, command_server: CommandServer, tmp_path: Path
) -> None:
    (recipe,) = code_blocks((packages[kind] / "README.md").read_text(), "yaml")
    (tmp_path / "mine.yaml").write_text(f"extends: smoke\n{recipe}")
    done = command_server.run("validate", "mine.yaml", cwd=tmp_path, env=environment([packages[kind]]))
    assert (done.returncode, done.stdout) == (0, "mine: ok\n"), done.stderr
    assert f"use: made_{kind}" in recipe


def test_a_new_command_is_in_the_command_line(
    packages: Mapping[str, Path], command_server: CommandServer, tmp_path: Path
) -> None:
    done = command_server.run("made-commands", "--help", cwd=tmp_path, env=environment([packages["commands"]]))
    assert "kernelrl made-commands runs/quickstart" in done.stdout, done.stderr


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="needs ruff")
def test_new_packages_of_short_and_long_names_have_the_style_of_the_project(
    packages: Mapping[str, Path], tmp_path: Path
) -> None:
    for kind in KINDS:
        for name in ("q", "q" * MAX_NAME, ("q_" * MAX_NAME)[: MAX_NAME - 1]):
            for path, text in plugin_package(kind, name).items():
                target = tmp_path / f"{kind}-{name}" / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
    for action in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *action, "--no-cache", "--quiet", str(tmp_path), *packages.values()]
        done = subprocess.run(ruff, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    own, ours = (
        tomllib.loads(path.read_text())["tool"]["ruff"]
        for path in (packages["rewards"] / "pyproject.toml", ROOT / "pyproject.toml")
    )
    assert [own["line-length"], own["lint"]["select"], own["lint"]["ignore"]] == [
        ours["line-length"],
        ours["lint"]["select"],
        ours["lint"]["ignore"],
    ]


def test_a_name_that_contains_the_name_of_the_sample_is_replaced_once() -> None:
    files = plugin_package("rewards", "brevity_of_brevity")
    assert "class BrevityOfBrevity(Reward):" in files["src/kernelrl_plugin_brevity_of_brevity/reward.py"]
    assert set(plugin_package("rewards", "brevity")) >= set(read_sample("rewards").files)


def test_a_kind_has_a_singular_and_a_plural() -> None:
    words = ("backend", "evaluator", "task", "retriever", "reward", "checker", "feedback", "policy", "advantage")
    assert [kind_named(word, "x") for word in (*words, "logger", "command")] == list(KINDS)
    assert [kind_named(kind, "x") for kind in KINDS] == list(KINDS)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("Short kernels", "short-kernels"),
        ("2fast", "my-2fast"),
        ("a__b", "a-b"),
        ("q" * (MAX_NAME + 1), "q" * MAX_NAME),
        ("kernelrl_plugin_mine", "mine"),
        ("reward", "my-reward"),
        ("none", "my-none"),
    ],
)
def test_an_impossible_name_is_refused_with_a_possible_one(name: str, instead: str) -> None:
    with pytest.raises(UsageError) as caught:
        require_possible_name("rewards", name)
    assert caught.value.fix == f"kernelrl plugins new rewards {instead}"
    require_possible_name("rewards", instead.replace("-", "_"))


def test_the_next_two_commands_are_printed(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["reward", "made", "--output", str(tmp_path / "my plugin")])
    assert done.stdout == f"pip install -e '{tmp_path}/my plugin[test]'\npython -m pytest '{tmp_path}/my plugin'\n"


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_text

    def fail(path: Path, text: str, encoding: str | None = None) -> int:
        if path.suffix == ".py":
            raise OSError(28, "No space left on device")
        return write(path, text, encoding)

    monkeypatch.setattr(Path, "write_text", fail)
    done = CliRunner().invoke(command, ["rewards", "made", "--output", str(tmp_path / "new")])
    assert "No space left on device" in str(done.exception)
    assert list(tmp_path.iterdir()) == []
