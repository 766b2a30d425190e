"""The public API: imported modules and exports."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelrl_core import api
from kernelrl_core.plugins.kinds import KINDS_BY_NAME

ROOT = Path(__file__).parents[2]
MODULES = ("kernelrl_core.api", *(f"kernelrl_core.api.{path.stem}" for path in Path(api.__path__[0]).glob("[a-z]*.py")))
HEAVY = ("commands", "components", "episodes", "monitoring", "recipes", "results", "runs")
LIGHT = tuple(name for name in MODULES if name.rpartition(".")[2] not in HEAVY)
PACKAGES = {"api", "errors", "interfaces", "service_address", "sources", "storage", "types", "version"}
"""Packages and modules of the core that the modules `LIGHT` may load."""
KINDS = tuple(kind for kind in KINDS_BY_NAME if kind != "commands")


def test_the_api_has_a_module_for_each_kind() -> None:
    others = {"kernelrl_core.api", *(f"kernelrl_core.api.{name}" for name in (*HEAVY, "config", "errors", "sources"))}
    assert set(MODULES) - others == {KINDS_BY_NAME[kind].api for kind in KINDS}


def test_importing_the_api_loads_no_private_part_of_the_core_and_no_heavy_module() -> None:
    code = (
        "import importlib, json, sys\n"
        f"for name in {sorted(LIGHT)!r}:\n"
        "    importlib.import_module(name)\n"
        "    core = {found.split('.')[1] for found in sys.modules if found.startswith('kernelrl_core.')}\n"
        f"    print(json.dumps([name, sorted(core - {PACKAGES!r}), sorted({{'torch', 'numpy'}} & set(sys.modules))]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[name, [], []] for name in sorted(LIGHT)]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_the_api_has_a_docstring_and_a_sorted_list_of_exports(name: str) -> None:
    module = importlib.import_module(name)
    assert (module.__doc__ or "").strip()
    exported = list(module.__all__)
    # The linter's order: constants, classes, functions.
    assert exported == sorted(exported, key=lambda text: (not text.isupper(), not text[0].isupper(), text))
    assert len(exported) == len(set(exported))
    assert [name for name in exported if not hasattr(module, name)] == []
