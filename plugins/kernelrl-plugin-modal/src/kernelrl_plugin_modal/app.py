"""The Modal app: functions `gpu` and `cpu` from the same code and image."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import modal

from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_plugin_modal import container
from kernelrl_plugin_modal.config import EXACT_GPUS, ModalConfig
from kernelrl_plugin_modal.image import OURS, Step, app_name, image_steps, project_directory

__all__ = ["add_functions", "build_image", "make_app", "our_wheels"]

Functions: TypeAlias = tuple[Any, Any]
"""The functions `gpu` and `cpu`."""

_LONGEST_S = 3600
"""Limit of a call in a container. The judge ends candidates and builds long before, by the settings of the request."""
_STARTUP_S = 900
_CORES = 4.0
_MEMORY_MIB = 16384


@contextmanager
def make_app(config: ModalConfig) -> Iterator[tuple[modal.App, Functions]]:
    """The app for a set of options and its functions, with kernelrl's wheels while the context lasts."""
    with our_wheels() as (directory, wheels):
        app = modal.App(app_name(config), include_source=False)
        yield app, add_functions(app, config, build_image(image_steps(wheels), directory))


def add_functions(app: modal.App, config: ModalConfig, image: modal.Image) -> Functions:
    """Add the functions to an app. Containers without a GPU build extensions."""

    def add(name: str, gpu: str | None, min_containers: int) -> Any:
        return app.function(
            name=name,
            image=image,
            gpu=gpu,
            cpu=_CORES,
            memory=_MEMORY_MIB,
            min_containers=min_containers,
            max_containers=config.max_containers,
            scaledown_window=config.scaledown_window_s,
            timeout=_LONGEST_S,
            startup_timeout=_STARTUP_S,
            # The core alone retries, and only after infrastructure errors.
            retries=0,
            # A candidate that leaves its sandbox reaches neither the network nor the account.
            block_network=True,
            restrict_modal_access=True,
            _experimental_restrict_output=True,
        )(container.serve)

    return add("gpu", EXACT_GPUS[config.gpu], config.min_containers), add("cpu", None, 0)


def build_image(steps: Sequence[Step], directory: Path) -> modal.Image:
    """The image of the steps.

    Args:
        directory: contains the local files.
    """
    image = modal.Image
    made: modal.Image | None = None
    for step in steps:
        method = getattr(image if made is None else made, step.method)
        options = dict(step.options)
        if step.method == "env":
            made = method(dict(pair.split("=", 1) for pair in step.arguments))
        elif step.method == "add_local_file":
            name, remote = step.arguments
            made = method(directory / name, remote, copy=True)
        else:
            made = method(*step.arguments, **options)
    assert made is not None
    return made


@contextmanager
def our_wheels() -> Iterator[tuple[Path, list[str]]]:
    """A directory with wheels of kernelrl's editable distributions, and what to install: their file names, and
    requirements with a version for the others.

    Raises:
        MissingPrerequisite: a wheel cannot be built.
    """
    projects = {name: project_directory(name) for name in OURS}
    with tempfile.TemporaryDirectory(prefix="kernelrl-modal-") as made:
        directories = [str(path) for path in projects.values() if path is not None]
        if directories:
            # Without hatchling, pip gets it for the build.
            isolation = ["--no-build-isolation"] if find_spec("hatchling") else []
            command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *isolation, "-w", made]
            done = subprocess.run([*command, *directories], capture_output=True, text=True)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["without a word"])[-1]
                raise MissingPrerequisite(
                    f"kernelrl's wheels cannot be built: {last}", fix="pip install hatchling", see="modal"
                )
        wheels = sorted(path.name for path in Path(made).glob("*.whl"))
        others = [f"{name}=={metadata.version(name)}" for name, path in projects.items() if path is None]
        yield Path(made), [*wheels, *others]
