"""Harbor folders: tasks of a recipe for coding agents, with the judge as verifier.

`kernelrl export RECIPE --as harbor` writes them. Harbor copies `/workspace/kernel.py` of the agent's container into the
verifier's, a container of its own, and runs `tests/test.sh` there, which calls this module:

    python -P -m kernelrl_adapters.harbor --task /tests --kernel /workspace/kernel.py --output /logs/verifier

Both containers have the same `/logs/verifier`, so the script first removes what an agent wrote there.

Format: task.toml of Harbor 0.26 (schema version 1.4). Its `reward.json` holds numbers only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_adapters.shared import prompts_of, recipe_of, score_reply_to, turn_metrics
from kernelrl_core.api.components import registry
from kernelrl_core.api.config import write_atomically
from kernelrl_core.api.episodes import Turn
from kernelrl_core.api.errors import KernelRLError, UsageError
from kernelrl_core.api.policies import Message
from kernelrl_core.api.tasks import Demonstration, Outcome, Task

__all__ = ["HarborTask", "harbor_tasks", "main", "reward_of", "write_harbor_task"]

DEFAULT_IMAGE = "kernelrl"
"""Tag of the image of the project's Containerfile."""
_KERNEL = "/workspace/kernel.py"
_TEST = f"""#!/bin/sh
# Judges the agent's kernel and writes reward.json and verdict.json.
# Whatever ends the judge, no reward may remain that the agent wrote.
rm -rf /logs/verifier/reward.json /logs/verifier/reward.txt /logs/verifier/verdict.json
# -P: the agent's directory has no modules of the judge.
exec python -P -m kernelrl_adapters.harbor --task /tests --kernel {_KERNEL} --output /logs/verifier
"""
_LONGEST_KERNEL_BYTES = 1_000_000
_AGENT_LIMIT_S = 3600.0
_START_LIMIT_S = 300.0
"""Time limit of the verifier beside that of an evaluation: imports, and precompiled headers of C++."""


@attrs.frozen
class HarborTask:
    """The content of one folder."""

    task: Task
    messages: tuple[Message, ...]
    """First prompt of the recipe."""
    solution: str | None
    """Source of a bundled correct kernel; None if there is none."""

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.task.id.replace("/", "-")


def harbor_tasks(text: str, *, held_out: bool) -> Iterator[HarborTask]:
    """The tasks of a recipe with their first prompts and bundled solutions.

    Args:
        text: from `read_recipe`.
        held_out: tasks of `eval` instead of the training tasks.
    """
    recipe = recipe_of(text)
    source = registry().make("tasks", recipe.tasks)
    for task, messages in asyncio.run(prompts_of(text, held_out=held_out)):
        right = [one for one in source.demonstrations(task) if _solves(one, recipe.backend.use)]
        yield HarborTask(task, messages, right[0].source if right else None)


def _solves(demonstration: Demonstration, backend: str) -> bool:
    return demonstration.backend == backend and demonstration.outcome is Outcome.CORRECT


def write_harbor_task(task: HarborTask, text: str, directory: Path, *, image: str, gpus: int) -> None:
    """Write one folder: `task.toml`, `instruction.md`, `environment`, `tests` and, with a solution, `solution`.

    Args:
        text: recipe, from `read_recipe`.
        directory: an existing empty directory.
        image: container image that has kernelrl and the plugins of the recipe.
        gpus: number of GPUs of both containers.
    """
    recipe = recipe_of(text)
    limit_s = recipe.evaluation.timeout_s + _START_LIMIT_S
    files = {
        "task.toml": _task_toml(task, recipe.backend.use, verifier_limit_s=limit_s, gpus=gpus),
        "instruction.md": _instruction(task.messages),
        "environment/Dockerfile": f"FROM {image}\nENTRYPOINT []\nWORKDIR /workspace\n",
        "tests/Dockerfile": f"FROM {image}\nENTRYPOINT []\nCOPY . /tests\n",
        "tests/recipe.json": _verifier_recipe(text) + "\n",
        "tests/task.json": json.dumps(_fields(task.task), indent=1) + "\n",
        "tests/test.sh": _TEST,
    }
    if task.solution is not None:
        files["solution/kernel.py"] = task.solution
        files["solution/solve.sh"] = f"#!/bin/sh\nset -eu\ncp /solution/kernel.py {_KERNEL}\n"
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")
        if path.suffix == ".sh":
            path.chmod(0o755)


def _fields(task: Task) -> dict[str, Any]:
    """What the judge needs of a task."""
    return {
        "id": task.id,
        "reference": task.reference,
        "precision": task.precision,
        "input_overlay": task.input_overlay,
    }


def _verifier_recipe(text: str) -> str:
    """The recipe without what a reply's score does not need: an index or a file that the container lacks."""
    resolved = json.loads(text)
    return json.dumps({**resolved, "retriever": None}, sort_keys=True)


def _task_toml(task: HarborTask, backend: str, *, verifier_limit_s: float, gpus: int) -> str:
    # JSON strings, numbers and lists are TOML values, too.
    quoted = json.dumps
    machine = 'network_mode = "no-network"\n' + (f"gpus = {gpus}\n" if gpus else "")
    return (
        'schema_version = "1.4"\n'
        f"artifacts = [{quoted(_KERNEL)}]\n"
        f"\n[task]\nname = {quoted('kernelrl/' + task.name)}\n"
        f"description = {quoted(f'Write a {backend} kernel for {task.task.id}')}\n"
        f"\n[metadata]\ntask = {quoted(task.task.id)}\nbackend = {quoted(backend)}\n"
        f"\n[agent]\ntimeout_sec = {_AGENT_LIMIT_S}\n"
        "\n# A container of its own: an agent cannot reach the verifier's files.\n"
        f'[verifier]\nenvironment_mode = "separate"\ntimeout_sec = {verifier_limit_s}\n'
        f"\n[verifier.environment]\n{machine}"
        f"\n[environment]\n{machine}"
    )


def _instruction(messages: Sequence[Message]) -> str:
    texts = [message.content for message in messages if message.role != "assistant"]
    closing = f"Write the complete Python module to the file `{_KERNEL}`. Only this file is judged."
    return "\n\n".join([*texts, closing]) + "\n"


# --- the verifier -----------------------------------------------------------------------------------------------------


def reward_of(turn: Turn) -> dict[str, float]:
    """The content of `reward.json`: `reward`, the score of the turn, and the numbers of `turn_metrics`."""
    return {"reward": turn.score.total, **turn_metrics(turn)}


def _verdict_of(turn: Turn) -> dict[str, Any]:
    missing = list(turn.evaluation.isolation.missing) if turn.evaluation is not None else []
    return {
        "outcome": str(turn.outcome),
        "verdict": str(turn.verdict),
        "message": turn.message,
        "findings": [attrs.asdict(finding) for finding in turn.findings],
        "missing_isolation": missing,
    }


def _read_kernel(path: Path) -> str:
    """The source of a kernel; empty if the agent wrote no file, or something that is no source."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _LONGEST_KERNEL_BYTES:
        return ""
    return path.read_text(encoding="utf-8", errors="replace")


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge a kernel and write `reward.json` and `verdict.json`.

    Without a `reward.json`, Harbor records an error instead of a reward: a machine that cannot judge gives none.

    Returns:
        0, or the exit code of an error of the machine or of the folder.
    """
    parser = argparse.ArgumentParser(
        prog="python -m kernelrl_adapters.harbor", description="Judge a kernel for Harbor."
    )
    parser.add_argument("--task", type=Path, required=True, help="Directory with task.json and recipe.json.")
    parser.add_argument("--kernel", type=Path, required=True, help="The agent's kernel.")
    parser.add_argument("--output", type=Path, required=True, help="Directory of reward.json.")
    given = parser.parse_args(arguments)
    try:
        turn = asyncio.run(_judge(given.task, _read_kernel(given.kernel)))
        given.output.mkdir(parents=True, exist_ok=True)
        verdict = _verdict_of(turn)
        write_atomically(given.output / "verdict.json", json.dumps(verdict, indent=1))
        write_atomically(given.output / "reward.json", json.dumps(reward_of(turn)))
    except KernelRLError as error:
        print(f"kernelrl: {error.message}", file=sys.stderr)
        if error.fix:
            print(f"kernelrl: fix: {error.fix}", file=sys.stderr)
        return int(error.exit_code)
    print(f"{verdict['outcome']}: {verdict['message']}" if verdict["message"] else verdict["outcome"])
    if verdict["missing_isolation"]:
        print(f"layers of isolation that this container does not permit: {', '.join(verdict['missing_isolation'])}")
    return 0


async def _judge(folder: Path, kernel: str) -> Turn:
    try:
        text = (folder / "recipe.json").read_text(encoding="utf-8")
        task = Task(**json.loads((folder / "task.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"{folder} is not the folder tests of an exported task: {error}", fix="kernelrl export RECIPE --as harbor"
        ) from error
    return await score_reply_to(text.strip(), task, _as_reply(kernel) if kernel else "")


def _as_reply(kernel: str) -> str:
    longest = max(map(len, re.findall("`+", kernel)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{kernel}\n{fence}"


if __name__ == "__main__":
    sys.exit(main())
