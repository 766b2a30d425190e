"""`kernelrl env`: the installation in a form for bug reports, without secrets and without the name of a person."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from kernelrl_command_server import CommandServer

from kernelrl_core.cli.env import _without_home
from kernelrl_core.version import __version__

SECRETS = {
    "TINKER_API_KEY": "tml-secret-1",
    "KERNELRL_RUN_SECRET": "5ec4e7" * 8,
    "WANDB_API_KEY": "secret-2",
    "HTTPS_PROXY": "http://user:secret-3@proxy",
    "MY_OWN_API_KEY": "secret-4",
}


@pytest.fixture
def shown(command_server: CommandServer, tmp_path: Path) -> tuple[str, str]:
    """Text and JSON."""
    environment = {**os.environ, **SECRETS, "HOME": str(tmp_path), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}
    environment["PRIVATE_THING"] = "private"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/g++").symlink_to("/bin/true")
    environment["PATH"] = f"{tmp_path / 'bin'}:{environment['PATH']}"
    done = [command_server.run("env", *more, cwd=tmp_path, env=environment) for more in ((), ("--json",))]
    assert [one.returncode for one in done] == [0, 0], done[0].stderr
    return done[0].stdout, done[1].stdout


def test_versions_plugins_and_hardware_are_listed(shown: tuple[str, str]) -> None:
    text, document = shown
    facts = json.loads(document)
    assert facts["kernelrl"] == __version__
    assert facts["packages"]["click"]
    assert "core" in [plugin["name"] for plugin in facts["plugins"]]
    assert re.search(r"^hardware +\d+ CPU cores, ", text, re.M)
    assert re.search(r"^plugin +core: kernelrl ", text, re.M)


def test_variables_are_listed_by_name_and_no_value_is_printed(shown: tuple[str, str]) -> None:
    for output in shown:
        assert all(name in output for name in SECRETS)
        assert not any(value in output for value in SECRETS.values())
        assert "secret-" not in output
        assert "private" not in output.lower()


def test_the_home_directory_is_printed_as_a_tilde(shown: tuple[str, str], tmp_path: Path) -> None:
    assert not any(str(tmp_path) in output for output in shown)


def test_only_whole_path_components_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert _without_home({"a": ["/home/ada/x /home/ada", "/home/adam"]}) == {"a": ["~/x ~", "/home/adam"]}
