"""What is said about isolation agrees with what this machine allows, found out by other means."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from kernelrl_judge.isolation import layers as isolation
from kernelrl_judge.isolation import sandbox


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "kernelrl_judge.isolation.layers"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    told: dict[str, object] = json.loads(done.stdout)
    return told


def in_force(found: dict[str, object]) -> set[str]:
    layers = found["in_force"]
    assert isinstance(layers, list)
    return set(layers)


def allowed(*words: str) -> bool:
    try:
        return subprocess.run([*words, "true"], capture_output=True, timeout=20).returncode == 0
    except OSError:
        return False


def test_what_needs_no_permission_is_in_force(found: dict[str, object]) -> None:
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("the filter knows no other processors")
    assert in_force(found) >= {"limits", "capabilities", "seccomp"}


def test_namespaces_that_others_can_make_are_in_force(found: dict[str, object]) -> None:
    if not allowed("unshare", "--user", "--map-root-user", "--pid", "--net", "--ipc", "--uts", "--mount", "--fork"):
        pytest.skip("this machine does not allow namespaces")
    assert in_force(found) >= {"user_namespace", "pid_namespace", "network_namespace"}


def test_mounts_that_others_can_make_are_in_force(found: dict[str, object]) -> None:
    if not allowed("unshare", "--user", "--map-root-user", "--pid", "--mount", "--fork", "--mount-proc"):
        pytest.skip("this machine does not allow mounts of `/proc`")
    assert "mount_namespace" in in_force(found)


def test_each_missing_layer_has_its_fix(found: dict[str, object]) -> None:
    assert set(isolation.FIXES) == set(sandbox.LAYERS)
    missing = found["missing"]
    assert isinstance(missing, dict)
    assert in_force(found) | set(missing) == set(sandbox.LAYERS)
    assert all(missing.values())


@pytest.mark.parametrize(
    ("missing", "level"),
    [
        ([], 4),
        (["cgroup", "device_nodes", "dropped_uid"], 4),
        (["seccomp"], 3),
        (["capabilities"], 2),
        (["network_namespace", "seccomp"], 2),
        (["pid_namespace", "mount_namespace"], 1),
        (["limits"], 0),
    ],
)
def test_a_level_needs_all_below_it(missing: list[str], level: int) -> None:
    assert sandbox.isolation_level(missing) == level
