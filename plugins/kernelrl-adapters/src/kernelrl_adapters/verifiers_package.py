"""An environment package for the hub of verifiers: the tasks, the prompts and the judge of one recipe.

`kernelrl export RECIPE --as verifiers` writes it, in the layout of `vf-init` (verifiers 0.4).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from kernelrl_adapters.shared import recipe_of
from kernelrl_core.api.components import registry
from kernelrl_core.api.episodes import Recipe

__all__ = ["package_name", "write_verifiers_package"]

_TASKSET = '''"""The tasks of recipe.yaml; kernelrl-adapters evaluates the replies."""

from pathlib import Path

from kernelrl_adapters import KernelTaskset
from kernelrl_adapters.verifiers_plugin import KernelTasksetConfig

RECIPE = Path(__file__).with_name("recipe.yaml")


class RecipeTaskset(KernelTaskset):
    """The tasks of a recipe: of this package, unless the configuration names another one, or a service."""

    def __init__(self, config: KernelTasksetConfig) -> None:
        own = {} if config.recipe or config.service else {"recipe": str(RECIPE)}
        super().__init__(config.model_copy(update=own))
'''
_INIT = """from kernelrl_adapters import KernelEnv, KernelHarness
from {package}.taskset import RecipeTaskset

__all__ = ["KernelEnv", "KernelHarness", "RecipeTaskset"]
"""
_PROJECT = """[project]
name = "{name}"
version = "0.1.0"
description = "GPU kernels for the tasks of {tasks}, judged by kernelrl"
readme = "README.md"
requires-python = ">=3.11"
dependencies = {dependencies}

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["{package}"]
"""
_README = """# {name}

Tasks for writing kernels in {backend}: `{package}/recipe.yaml` has tasks, prompts, evaluation and rewards.

```sh
uv pip install -e .
uv run vf-eval {name} -n 3 --env.taskset.split {split}
```
"""


def package_name(directory: str) -> str:
    """The name of the package in a directory of this name.

    >>> package_name("My kernels")
    'my_kernels'
    """
    return re.sub(r"\W+", "_", directory.lower()).strip("_") or "kernels"


def write_verifiers_package(text: str, directory: Path, name: str) -> None:
    """Write the files of a package.

    Args:
        text: recipe, from `read_recipe`.
        directory: an existing empty directory.
        name: of the package, from `package_name`; the name at the hub has hyphens.
    """
    recipe = recipe_of(text)
    facts = {
        "package": name,
        "name": name.replace("_", "-"),
        "tasks": recipe.tasks.use,
        "backend": recipe.backend.use,
        "split": recipe.eval.split,
        "dependencies": json.dumps(["verifiers", "kernelrl-adapters[verifiers]", *_distributions(recipe)]),
    }
    package = directory / name
    package.mkdir()
    files = {
        directory / "pyproject.toml": _PROJECT.format(**facts),
        directory / "README.md": _README.format(**facts),
        package / "__init__.py": _INIT.format(**facts),
        package / "taskset.py": _TASKSET,
        # JSON is YAML, too.
        package / "recipe.yaml": json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n",
    }
    for path, content in files.items():
        path.write_text(content, encoding="utf-8")


def _distributions(recipe: Recipe) -> list[str]:
    """The distributions whose components evaluate and score the replies."""
    used = [
        ("tasks", recipe.tasks),
        ("backends", recipe.backend),
        ("evaluators", recipe.evaluator),
        ("feedback", recipe.feedback),
        *(("rewards", use) for use in recipe.rewards.values()),
        *(("checkers", use) for use in recipe.checkers.values()),
    ]
    return sorted({registry().plugin_of(kind, use.use).dist for kind, use in used} - {"kernelrl", ""})
