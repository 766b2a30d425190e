"""`kernelrl env`: describe this installation for a bug report."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from kernelrl_core.cli.output import print_json, print_lines, table
from kernelrl_core.planning.prerequisite_checks import component_facts
from kernelrl_core.plugins.registry import registry
from kernelrl_core.runs.provenance import git_facts, machine_facts
from kernelrl_core.version import __version__

_PACKAGES = (
    *("attrs", "cattrs", "click", "jinja2", "numpy", "orjson", "packaging", "pluggy", "pyyaml", "rich"),
    *("openai", "peft", "tinker", "tinker-cookbook", "tilelang", "torch", "transformers", "triton", "vllm"),
)
"""Distributions whose versions matter, besides those of plugins."""
_VARIABLES = re.compile(
    r"(KERNELRL|KERNELBENCH|TINKER|OPENAI|WANDB|TRACKIO|HF|MODAL|RAY|CUDA|NVIDIA|HIP|ROCM|ROCR|HSA|TORCH|TORCHINDUCTOR"
    r"|PYTORCH|TRITON|NCCL|OMP|MKL|LD|PYTHON\w*|VIRTUAL|CONDA)_\w+|PYTHON[A-Z]+|CC|CXX|XDG_CACHE_HOME|\w+_API_KEY"
    r"|(?i:https?_proxy|no_proxy)"
)
"""Variables that change the behaviour. Only their names are printed: a value may be a key."""


@click.command("env")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(as_json: bool) -> None:
    """Describe this installation for a bug report: versions, plugins, hardware, compilers, isolation.

    Of environment variables only the names are printed, never a value. The home directory is printed as ~.

    \b
    Example:
      kernelrl env > environment.txt
    """
    facts = _without_home(_environment())
    if as_json:
        print_json(facts)
    else:
        print_lines(table(list(_rows(facts))))


def _environment() -> dict[str, Any]:
    found = machine_facts(registry())
    return {
        "kernelrl": __version__,
        "git": git_facts(Path(__file__).parent),
        **found,
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "components": [{key: row[key] for key in ("check", "state", "detail")} for row in component_facts(registry())],
        "container": any(Path(path).exists() for path in ("/.dockerenv", "/run/.containerenv")),
        "variables": sorted(name for name in os.environ if _VARIABLES.fullmatch(name)),
    }


def _rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    git = facts["git"]
    revision = "" if git is None else f", git {git['revision'][:12]}{' with changes' if git['changed'] else ''}"
    yield "kernelrl", facts["kernelrl"] + revision
    yield "python", facts["python"]
    yield "platform", facts["platform"] + (", in a container" if facts["container"] else "")
    hardware = facts["hardware"]
    yield "hardware", ", ".join([f"{hardware['cpus']} CPU cores", *(hardware["gpus"] or ["no NVIDIA GPU"])])
    for plugin in facts["plugins"]:
        state = "" if plugin["state"] == "ok" else f", {plugin['state']}"
        yield "plugin", f"{plugin['name']}: {plugin['dist']} {plugin['version']}{state}"
    yield "packages", ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    for row in facts["components"]:
        yield "component", f"{row['check']}: {row['detail']}"
    yield "variables", ", ".join(facts["variables"]) or "none"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _without_home(value: Any) -> Any:
    """The value with `~` in place of the home directory, whose name is often that of a person."""
    home = str(Path.home())
    if isinstance(value, str):
        return re.sub(rf"{re.escape(home)}(?![\w.-])", "~", value) if home != "/" else value
    if isinstance(value, dict):
        return {key: _without_home(item) for key, item in value.items()}
    return [_without_home(item) for item in value] if isinstance(value, list) else value
