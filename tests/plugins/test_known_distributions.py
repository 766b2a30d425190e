"""The table of components and distributions matches the entry points of the workspace."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from kernelrl_core.plugins.known_distributions import distribution_of

ROOT = Path(__file__).parents[2]


def test_the_table_matches_the_workspace() -> None:
    spec = importlib.util.spec_from_file_location("generator", ROOT / "scripts/known_distributions.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert generator.FILE.read_text(encoding="utf-8") == generator.table(), "run: python scripts/known_distributions.py"


@pytest.mark.parametrize(
    ("kind", "name", "distribution"),
    [
        ("policies", "openai", "kernelrl-plugin-openai"),
        ("feedback", "none", "kernelrl-plugin-feedback"),
        ("tasks", "directory", "kernelrl-plugin-kernelbench"),
        ("commands", "tinker-server", "kernelrl-tinker-server"),
        ("commands", "lab", "kernelrl-lab"),
        ("policies", "unknown", ""),
        ("kinds", "torch", ""),
    ],
)
def test_a_component_has_its_distribution(kind: str, name: str, distribution: str) -> None:
    assert distribution_of(kind, name) == distribution


def test_every_distribution_in_the_table_is_in_the_workspace() -> None:
    table = json.loads((ROOT / "kernelrl_core/plugins/known_distributions.json").read_text(encoding="utf-8"))
    named = {distribution for components in table["components"].values() for distribution in components.values()}
    assert named <= {path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml")}
