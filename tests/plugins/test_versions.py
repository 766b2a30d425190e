"""Versions that a worker elsewhere shares with its client."""

from __future__ import annotations

import pytest

from kernelrl_core.errors import MissingPrerequisite
from kernelrl_core.plugins.registry import registry
from kernelrl_core.plugins.versions import require_same_versions, worker_versions

HERE = {"python": "3.11", "kernelrl": "1.0", "kernelrl-judge": "1.0", "kernelrl-plugin-cuda": "1.0"}


def compared(there: dict[str, str], *distributions: str) -> None:
    require_same_versions(HERE, there, "worker box", distributions=distributions, fix="install 1.0")


@pytest.mark.parametrize("name", sorted(HERE))
def test_another_version_is_named_with_its_place(name: str) -> None:
    with pytest.raises(MissingPrerequisite, match=f"worker box has other versions: {name} 0.9, here {HERE[name]}"):
        compared({**HERE, name: "0.9"})


def test_a_backend_that_one_side_lacks_is_no_difference() -> None:
    compared({name: version for name, version in HERE.items() if name != "kernelrl-plugin-cuda"})


def test_a_backend_that_is_used_must_be_on_both_sides() -> None:
    with pytest.raises(MissingPrerequisite, match="not installed"):
        compared({name: version for name, version in HERE.items() if "cuda" not in name}, "kernelrl-plugin-cuda")


def test_equal_environments_have_equal_versions() -> None:
    here = worker_versions(registry(), "pytest")
    assert {"python", "kernelrl", "pytest"} <= here.keys()
    require_same_versions(here, worker_versions(registry(), "pytest"), "worker", fix="")


def test_a_distribution_that_is_not_installed_has_no_version() -> None:
    assert worker_versions(registry(), "nowhere-at-all")["nowhere-at-all"] == "not installed"
