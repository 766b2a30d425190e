"""The server that a run starts for itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kernelrl_core.api.policies import Message, TrainingSample
from kernelrl_plugin_tinker.config import LocalModel, TinkerConfig
from kernelrl_plugin_tinker.policy import TinkerPolicy
from kernelrl_testing.waiting import DEADLINE_S

SMALL = LocalModel(width=64, layers=2, heads=2, context_tokens=256, warm_start_steps=30)
MESSAGES = (Message("user", "Write a kernel for relu.\nAnswer with one line.\n"),)


def test_a_killed_server_is_restarted_and_leaves_no_files(make_context, sampling, make_update, tmp_path: Path) -> None:
    """Replies, and a step repeated from the last checkpoint, are those of a run without a kill.

    The end of a child process is detected at once, without waiting for `give_up_after_s`.
    """

    async def play(name: str, *, trouble: bool):
        policy = TinkerPolicy(TinkerConfig(server="local", local=SMALL))
        directory = tmp_path / f"{name}-checkpoint"
        directory.mkdir()
        try:
            await policy.start(make_context(run=name))
            assert policy._own is not None
            prompt = policy.render(MESSAGES)
            samples = tuple(TrainingSample(str(a), prompt.tokens, (65 + a,), (-5.0,), 1.0 - a) for a in range(3))
            await policy.update(make_update(samples))
            await policy.save(directory)
            if trouble:
                policy._own.server.kill()
            replies = [await policy.sample(prompt, sampling(1))]
            # The training client ended with the server; no update has happened since the checkpoint.
            await policy.save(directory)
            if trouble:
                policy._own.server.kill()
            await policy.update(make_update(samples, 1))
            return [*replies, await policy.sample(prompt, sampling(2))]
        finally:
            await policy.aclose()

    whole = asyncio.run(asyncio.wait_for(play("whole", trouble=False), DEADLINE_S))
    assert asyncio.run(asyncio.wait_for(play("troubled", trouble=True), DEADLINE_S)) == whole
    for name in ("whole", "troubled"):
        assert list((tmp_path / name).iterdir()) == []
        held = {
            str(path.relative_to(tmp_path / f"{name}-checkpoint")) for path in tmp_path.glob(f"{name}-checkpoint/*/*")
        }
        assert held == {
            *("state/weights.pt", "state/optimizer.pt", "state/about.json"),
            *("sampler/weights.pt", "sampler/about.json"),
        }
