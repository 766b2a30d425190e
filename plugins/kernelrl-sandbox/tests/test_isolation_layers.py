"""The reported isolation layers are those that this machine permits, as other commands find out."""

from __future__ import annotations

import os
import subprocess

import pytest

from kernelrl_core.api.config import MachineFact
from kernelrl_sandbox import layers, privileges
from kernelrl_testing.waiting import DEADLINE_S


@pytest.fixture(scope="module")
def facts() -> dict[str, MachineFact]:
    return {fact.label: fact for fact in layers.isolation_facts()}


@pytest.fixture(scope="module")
def in_force(facts: dict[str, MachineFact]) -> set[str]:
    return {layer.replace(" ", "_") for layer in facts["isolation"].detail.partition(": ")[2].split(", ")}


def allowed(*words: str) -> bool:
    try:
        return subprocess.run([*words, "true"], capture_output=True, timeout=DEADLINE_S).returncode == 0
    except OSError:
        return False


def test_layers_without_permission_are_in_force(in_force: set[str]) -> None:
    if os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("the filter knows no other architecture")
    assert in_force >= {"limits", "capabilities", "seccomp"}


def test_namespaces_that_others_can_make_are_in_force(in_force: set[str]) -> None:
    if not allowed("unshare", "--user", "--map-root-user", "--pid", "--net", "--ipc", "--uts", "--mount", "--fork"):
        pytest.skip("this machine does not allow namespaces")
    assert in_force >= {"user_namespace", "pid_namespace", "network_namespace"}


def test_mounts_that_others_can_make_are_in_force(in_force: set[str]) -> None:
    if not allowed("unshare", "--user", "--map-root-user", "--pid", "--mount", "--fork", "--mount-proc"):
        pytest.skip("this machine does not allow mounts of `/proc`")
    assert "mount_namespace" in in_force


def test_each_missing_layer_has_its_fix(in_force: set[str], facts: dict[str, MachineFact]) -> None:
    assert set(layers.FIXES) == set(privileges.LAYERS)
    missing = {name.removeprefix("isolation "): fact.fix for name, fact in facts.items() if name != "isolation"}
    assert in_force | set(missing) == set(privileges.LAYERS)
    assert all(missing.values())


@pytest.mark.parametrize(
    ("missing", "level"),
    [
        ([], 4),
        (["device_nodes", "dropped_uid"], 4),
        (["seccomp"], 3),
        (["capabilities"], 2),
        (["network_namespace", "seccomp"], 2),
        (["pid_namespace", "mount_namespace"], 1),
        (["limits"], 0),
    ],
)
def test_a_level_needs_all_below_it(missing: list[str], level: int) -> None:
    assert privileges.isolation_level(missing) == level
