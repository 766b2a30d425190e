"""Load a policy's checkpoint in a process of its own, and sample one reply there."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelrl_core.interfaces.component import Component
from kernelrl_core.interfaces.policies import PolicyContext
from kernelrl_core.plugins.loading import PluginInfo
from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.types import Message, Reply
from kernelrl_core.types.serialization import dumps, from_json, loads, to_json
from kernelrl_core.types.training import SamplingSettings
from kernelrl_testing.contracts.breaches import Breach, Fault
from kernelrl_testing.contracts.options import read_options

__all__ = ["main", "reply_elsewhere"]

_FIX = "save everything that load needs in the directory or in the returned state, and nothing in the process"


def reply_elsewhere(
    component: Component,
    options: Mapping[str, Any],
    state: Mapping[str, Any],
    directory: Path,
    messages: tuple[Message, ...],
    settings: SamplingSettings,
) -> Reply:
    """The reply of a new policy in another process, after `load` of a checkpoint.

    Args:
        options: as a recipe writes them.
    """
    request = {
        "component": [component.name, component.target, component.config],
        "options": options,
        "state": state,
        "directory": str(directory),
        "messages": [to_json(message) for message in messages],
        "settings": to_json(settings),
    }
    answer = directory / "reply.json"
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import main; main()", str(answer)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    if done.returncode or not answer.exists():
        line = next(iter(done.stderr.strip().splitlines()[::-1]), f"exit code {done.returncode}")
        raise Breach(Fault(f"load in another process fails: {line}", _FIX))
    return loads(Reply, answer.read_text(encoding="utf-8"))


def main() -> None:
    """Read a request on standard input and write the reply to the file in the first argument."""
    request = json.load(sys.stdin)
    name, target, config = request["component"]
    component = Component(name, target, config)
    plugin = PluginInfo("here", "here", "1", "ok", components={"policies": (component,)})
    # A policy may name others, such as the learner of an endpoint.
    plugins = Registry((plugin, *registry().plugins))
    use = read_options(plugins, "policies", f"here:{name}", request["options"])
    policy = plugins.make("policies", use)
    Path(sys.argv[1]).write_text(dumps(asyncio.run(_reply(policy, use.options, request))), encoding="utf-8")


async def _reply(policy: Any, options: Any, request: Mapping[str, Any]) -> Reply:
    async def demonstrations() -> tuple[()]:
        return ()

    directory = Path(request["directory"])
    loss = next(iter(sorted(options.capabilities().losses)), "")
    context = PolicyContext(0, directory, None, demonstrations, "none", lambda line: None, loss, weights_follow=True)
    messages = [from_json(Message, message) for message in request["messages"]]
    try:
        await policy.start(context)
        await policy.load(request["state"], directory)
        reply: Reply = await policy.sample(policy.render(messages), from_json(SamplingSettings, request["settings"]))
        return reply
    finally:
        await policy.aclose()
