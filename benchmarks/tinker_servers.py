"""Try the calls of policy `tinker` at Tinker servers, and write what each one serves as a table.

    python benchmarks/tinker_servers.py tinker-server=http://127.0.0.1:8124 SkyRL=http://127.0.0.1:8000 \
        --output benchmarks/results/tinker_servers.json
    python benchmarks/tinker_servers.py --page plugins/kernelrl-plugin-tinker/README.md \
        --output benchmarks/results/tinker_servers.json        # writes the table of the results into a page

Each call is made with the first model in the server's list and a text of two tokens, through the SDK that is installed.
Servers that need different SDKs are tried one after the other: results of other servers in the output are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import tinker
from provenance import provenance
from tinker import types

from kernelrl_core.api.errors import KernelRLError
from kernelrl_core.api.policies import LossSample, OptimizerSettings, TrainingSample
from kernelrl_plugin_tinker import sdk
from kernelrl_plugin_tinker.passes import adam, datum, scored_datum
from kernelrl_plugin_tinker.service import Service

LOSSES = ("importance_sampling", "ppo", "cispo", "gspo", "dro", "stable_reinforce")
OPTIONS = {"dro": {"beta": 0.1}}
ONE = types.TensorData.from_numpy(np.ones(1, np.float32))
SAMPLE = LossSample("survey", (1,), (1,), (-1.0,), (0.5,))
SCORED = TrainingSample("survey", (1,), (1,), (-1.0,), 0.0)
ADAM = OptimizerSettings(1e-4, 0.9, 0.95, 1e-8, 0.0, 1.0)
_TABLE = re.compile(r"(<!-- table: servers -->\n).*?(<!-- end of servers -->)", re.DOTALL)


class Survey:
    """The calls of one server; each result is `yes`, `no: REASON`, or a value."""

    def __init__(self, service: Service, served: list[Any]) -> None:
        self._service, self._entry = service, served[0]
        self._model = str(served[0].model_name)
        self.answers: dict[str, str] = {}

    async def run(self) -> dict[str, str]:
        length = getattr(self._entry, "max_context_length", None)
        self.answers["context length in the list of models"] = "yes" if length else "no"
        own = await self._service.own_capabilities()
        self.answers["`train.ratio: sequence`"] = "yes" if "sequence" in own.ratios else "no"
        self.answers["bits of a seed"] = str(own.seed_bits)
        files = await self._service.tokenizer_files(self._model)
        self.answers["tokenizer of a model in a directory"] = "yes" if files else "no"
        await self._sample()
        await self._train()
        return self.answers

    async def _try(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        try:
            result = await work()
        except KernelRLError as error:
            self.answers[name] = f"no: {error.message}"
            return None
        self.answers[name] = "yes"
        return result

    async def _call(self, made: Any) -> Any:
        return await self._service.call("the call", made)

    async def _sample(self) -> None:
        sampler = await self._service.sampling_client(base_model=self._model)
        prompt = types.ModelInput.from_ints([1, 1])
        settings = types.SamplingParams(max_tokens=1, seed=1, temperature=1.0)

        async def reply() -> None:
            sequence = (await self._call(sampler.sample(prompt, 1, settings))).sequences[0]
            if len(sequence.logprobs or ()) != len(sequence.tokens):
                raise KernelRLError("log-probabilities are missing")

        await self._try("replies with log-probabilities", reply)
        await self._try(
            "log-probabilities of a prompt (`train.kl`)", lambda: self._call(sdk.prompt_logprobs(sampler, prompt, 1))
        )

    async def _new_client(self) -> Any:
        client = self._service.client
        return await self._service.request(
            "a training client", lambda: client.create_lora_training_client(base_model=self._model, rank=8, seed=1)
        )

    async def _train(self) -> None:
        for loss in LOSSES:
            # A client refuses further requests after one that failed.
            await self._try_loss(await self._new_client(), loss)
        trainer = await self._new_client()
        await self._try(
            "log-probabilities of the trainer (`train.mismatch`)",
            lambda: self._call(trainer.forward([scored_datum(SCORED)], "cross_entropy")),
        )
        await self._call(trainer.forward_backward([datum(SAMPLE)], "ppo"))
        step = await self._try("optimizer step", lambda: self._call(trainer.optim_step(adam(ADAM))))
        norms = [name for name in (step.metrics or {}) if "grad_norm" in name]
        self.answers["norm of the gradient"] = "yes" if norms else "no"
        saved = await self._try("saved state", lambda: self._call(trainer.save_state("survey")))
        sampler = await self._try(
            "saved sampler weights", lambda: self._call(trainer.save_weights_for_sampler("sampler"))
        )
        await self._load(saved.path)
        await self._delete(saved.path)
        self.answers["path of sampler weights"] = re.sub(r"//[^/]+", "//RUN", sampler.path)

    async def _try_loss(self, trainer: Any, loss: str) -> None:
        data, options = datum(SAMPLE), OPTIONS.get(loss)
        if loss == "gspo":
            inputs = {**data.loss_fn_inputs, "sequence_ratio_mask": ONE}
            data = types.Datum(model_input=data.model_input, loss_fn_inputs=inputs)
        await self._try(f"loss `{loss}`", lambda: self._call(trainer.forward_backward([data], loss, options)))

    async def _load(self, path: str) -> None:
        create = self._service.client.create_training_client_from_state_with_optimizer
        await self._try(
            "resume into a new model", lambda: self._service.request("a training client", lambda: create(path))
        )
        trainer = await self._new_client()
        await self._try(
            "resume into a model made before",
            lambda: self._service.request("the call", lambda: trainer.load_state_with_optimizer(path)),
        )

    async def _delete(self, path: str) -> None:
        rest, run = self._service.rest, path.removeprefix("tinker://").split("/")[0]
        await self._try(
            "list of checkpoints", lambda: self._service.request("the call", lambda: rest.list_checkpoints(run))
        )

        await self._try(
            "deletion of a checkpoint",
            lambda: self._service.request("the call", lambda: rest.delete_checkpoint_from_tinker_path(path)),
        )


async def survey(url: str, api_key: str) -> dict[str, str]:
    """Results of the calls of the server at a URL."""
    service = Service(base_url=url, api_key=api_key, timeout_s=900, give_up_after_s=120, retries=0, say=print)
    try:
        return await Survey(service, await service.connect()).run()
    finally:
        await service.aclose()


def table(results: dict[str, dict[str, Any]]) -> str:
    """Markdown table of the results: a row per call, a column per server."""
    servers = sorted(results, reverse=True)
    lines = [f"| call | {' | '.join(servers)} |", "|---" * (len(servers) + 1) + "|"]
    lines.append(f"| SDK of the trial | {' | '.join(results[name]['sdk'] for name in servers)} |")
    for call in next(iter(results.values()))["answers"]:
        cells = [results[name]["answers"].get(call, "not tried").partition(":")[0] for name in servers]
        if call.startswith("path"):
            cells = [f"`{results[name]['answers'].get(call, '')}`" for name in servers]
        lines.append(f"| {call} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("servers", nargs="*", metavar="NAME=URL")
    parser.add_argument("--api-key", default="tml-for-a-server-on-this-machine")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--page", type=Path, help="page whose table of servers is replaced")
    arguments = parser.parse_args()
    kept = json.loads(arguments.output.read_text()) if arguments.output.exists() else {"servers": {}}
    for server in arguments.servers:
        name, separator, url = server.partition("=")
        if not separator:
            sys.exit(f"{server!r} is not NAME=URL")
        answers = asyncio.run(survey(url, arguments.api_key))
        kept["servers"][name] = {"sdk": tinker.__version__, "answers": answers}
    kept["provenance"] = provenance()
    arguments.output.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    text = table(kept["servers"])
    print(text)
    if arguments.page is not None:
        page = arguments.page.read_text(encoding="utf-8")
        arguments.page.write_text(_TABLE.sub(rf"\g<1>{text}\g<2>", page), encoding="utf-8")


if __name__ == "__main__":
    main()
