"""A page states what its commands need, where that is not on every machine: a GPU, a key, a clone, an account."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import page_blocks
import pytest
from command_lines import PLACEHOLDER, CommandLine, command_lines, leaf

from kernelrl_core.planning.load import bundled_recipes, load_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.evaluation_spec import spec_of
from kernelrl_core.recipe.prerequisites import missing_prerequisites, recipe_uses
from kernelrl_core.recipe.problems import RecipeError

WORDS = {"GPU": "GPU", "TINKER_API_KEY": "Tinker", "KernelBench": "KernelBench", "Modal": "Modal", "WANDB": "W&B"}
"""Part of the name of a missing prerequisite -> the word by which a page states it."""
STARTING = {f"kernelrl {name}" for name in ("ablate", "check", "eval", "run", "sample")}
"""Commands that start components of a recipe."""


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without GPU, keys, accounts and clones."""
    for variable in ("TINKER_API_KEY", "KERNELBENCH_ROOT", "MODAL_TOKEN_ID", "WANDB_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path / "none.toml"))
    monkeypatch.setattr("kernelrl_core.interfaces.requirements.gpu_vendors", frozenset)
    monkeypatch.chdir(tmp_path)


@cache
def missing(recipe: str, overrides: tuple[str, ...]) -> frozenset[str]:
    """Words for the prerequisites of a recipe that a bare machine lacks."""
    try:
        loaded = load_recipe(recipe, overrides, registry=registry()).recipe
    except RecipeError:  # names a file of the reader
        return frozenset()
    found = missing_prerequisites(recipe_uses(loaded), spec_of(loaded), registry())
    return frozenset(word for part, word in WORDS.items() if any(part in what for what in found))


def needs(line: CommandLine) -> frozenset[str]:
    """Words for the prerequisites of a command line that starts a bundled recipe."""
    if line.words[0] != "kernelrl" or {"--dry-run", "--help"} & set(line.words):
        return frozenset()
    command, path, rest = leaf(line.words)
    values = command.make_context(path, list(rest)).params
    recipe = values.get("recipe") or values.get("recipe_or_run")
    if recipe not in bundled_recipes() or path not in STARTING:
        return frozenset()
    overrides = values.get("overrides") or values.get("changes") or ()
    return missing(recipe, tuple(word for word in overrides if not PLACEHOLDER.fullmatch(word)))


def test_a_page_states_what_its_commands_need() -> None:
    found = []
    for page in page_blocks.pages():
        text = page.read_text(encoding="utf-8")
        lines = [line for block in page_blocks.blocks(page) for line in command_lines(block)]
        found += [
            f"{line.place}: {' '.join(line.words)}: the page does not mention {word}"
            for line in lines
            for word in sorted(needs(line))
            if word not in text
        ]
    assert not found, "\n".join(found)


def test_the_needs_of_a_recipe_are_found() -> None:
    assert needs(CommandLine("page:1", ("kernelrl", "run", "kevin"))) == {"GPU", "Tinker", "KernelBench"}
    assert needs(CommandLine("page:1", ("kernelrl", "run", "kevin_modal"))) == {"Modal", "Tinker", "KernelBench"}
    assert needs(CommandLine("page:1", ("kernelrl", "run", "kevin", "--dry-run"))) == frozenset()
    assert needs(CommandLine("page:1", ("kernelrl", "run", "quickstart"))) == frozenset()
