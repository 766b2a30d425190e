"""Calls every method of the SDK's clients, and every option that Tinker documents, and describes how the server reacts.

python plugins/kernelrl-tinker-server/tests/sdk_calls.py      # writes the table of the README
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import httpx
import tinker
import torch
from tinker import types

from kernelrl_testing.waiting import DEADLINE_S
from kernelrl_tinker_server.local import LocalServer

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- calls: written by tests/sdk_calls.py -->\n\n", "\n<!-- end of calls -->"

CLIENTS = (tinker.ServiceClient, tinker.TrainingClient, tinker.SamplingClient, tinker.RestClient, tinker.AdminClient)
LOCAL = {"get_telemetry", "get_console_url", "on_queue_state_change", "from_sampler_handle", "get_sampler_handle"}
"""Methods that send no request."""
PROMPT = types.ModelInput.from_ints([119, 114, 105, 116, 101])


def datum(**inputs: list[float]) -> types.Datum:
    given = {name: types.TensorData.from_torch(torch.tensor(row)) for name, row in inputs.items()}
    target = types.TensorData.from_torch(torch.tensor([105, 116, 101]))
    return types.Datum(
        model_input=types.ModelInput.from_ints([114, 105, 116]), loss_fn_inputs={"target_tokens": target, **given}
    )


SUPERVISED = datum(weights=[1.0, 1.0, 1.0])
SAMPLED = datum(logprobs=[-5.0, -5.0, -5.0], advantages=[1.0, 1.0, 1.0])
MASKED = datum(logprobs=[-5.0, -5.0, -5.0], advantages=[1.0, 1.0, 1.0], sequence_ratio_mask=[1.0, 1.0, 1.0])
OTHER_TARGETS = types.Datum(
    model_input=types.ModelInput.from_ints([114, 105, 116]),
    loss_fn_inputs={"target_tokens": torch.tensor([101, 101, 101]), "weights": torch.ones(3)},
)
SEVERAL_TARGETS = types.Datum(
    model_input=types.ModelInput.from_ints([114, 105, 116]),
    loss_fn_inputs={"target_tokens": torch.tensor([[101, 102]] * 3), "weights": torch.full((3, 2), 0.5)},
)
OF_LOSS: dict[str, tuple[types.Datum, dict[str, float] | None]] = {
    "cross_entropy": (SUPERVISED, None),
    "gspo": (MASKED, None),
    "dro": (SAMPLED, {"beta": 0.05}),
}
"""Data and options of a loss; of the others: `SAMPLED` and none."""
OF_SAMPLING = {
    "topk_prompt_logprobs=2": {"topk_prompt_logprobs": 2},
    "target_prompt_logprobs": {"target_prompt_logprobs": types.TensorData.from_torch(torch.tensor([[101, -1]] * 4))},
    "prompt_logprobs_last_n=2": {"include_prompt_logprobs": True, "prompt_logprobs_last_n": 2},
    "topk_sample_logprobs=2": {"topk_sample_logprobs": 2},
    "prompt_alt_tokens_k=2": {"prompt_alt_tokens_k": 2},
}
OF_PATHS = {
    "oai/api/v1/chat/completions": {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2},
    "oai/api/v1/completions": {"model": "tiny", "prompt": "hi", "max_tokens": 2},
    "anthropic/api/v1/messages": {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2},
}
"""Tinker's compatible inference: path -> body."""


class Clients:
    """One client of each kind, a checkpoint of each kind, and the calls with their arguments."""

    def __init__(self, server: LocalServer) -> None:
        self.service = tinker.ServiceClient(base_url=server.base_url, api_key=server.api_key)
        self.elsewhere, self.closed = (
            tinker.ServiceClient(base_url=server.base_url, api_key=server.api_key, project_id="project")
            for _ in range(2)
        )
        self.training = self.service.create_lora_training_client("tiny").result()
        self.state = self.training.save_state("state", ttl_seconds=3600).result().path
        self.weights = self.training.save_weights_for_sampler("weights").result().path
        self.sampling = self.service.create_sampling_client(model_path=self.weights).result()
        self.rest = tinker.RestClient(base_url=server.base_url, api_key=server.api_key)
        self.admin = tinker.AdminClient(base_url=server.base_url, api_key=server.api_key)
        self.run = self.training.get_info().model_id
        self.session = self.run.partition(":")[0]

    def calls(self) -> dict[str, Callable[[], Any]]:
        """`Class.method` -> a call of it. A method that is missing here is not known."""
        service, training, sampling = self.service, self.training, self.sampling
        rest, admin = self.rest, self.admin
        path = self.state
        return {
            "ServiceClient.create_lora_training_client": lambda: service.create_lora_training_client(
                "tiny", rank=8, seed=3, train_mlp=True, train_attn=True, train_unembed=False
            ),
            "ServiceClient.create_training_client_from_state": lambda: service.create_training_client_from_state(path),
            "ServiceClient.create_training_client_from_state_with_optimizer": lambda: (
                service.create_training_client_from_state_with_optimizer(path)
            ),
            "ServiceClient.create_sampling_client": lambda: service.create_sampling_client(base_model="tiny"),
            "ServiceClient.create_rest_client": service.create_rest_client,
            "ServiceClient.create_custom_loss": lambda: service.create_custom_loss(
                lambda logprobs, weights: (-(logprobs * weights).sum(), {}), {"logprobs": 1, "weights": 1}
            ),
            "ServiceClient.copy_weights": lambda: self.elsewhere.copy_weights(path),
            "ServiceClient.get_server_capabilities": service.get_server_capabilities,
            "ServiceClient.close": lambda: self.closed.close("success"),
            "TrainingClient.forward": lambda: training.forward([SUPERVISED], "cross_entropy"),
            "TrainingClient.forward_backward": lambda: training.forward_backward([SUPERVISED], "cross_entropy"),
            "TrainingClient.forward_backward_custom": lambda: training.forward_backward_custom(
                [SUPERVISED], lambda data, rows: (-sum(row.sum() for row in rows), {})
            ),
            "TrainingClient.optim_step": lambda: training.optim_step(types.AdamParams(learning_rate=1e-4)),
            "TrainingClient.save_state": lambda: training.save_state("again"),
            "TrainingClient.load_state": lambda: training.load_state(path),
            "TrainingClient.load_state_with_optimizer": lambda: training.load_state_with_optimizer(path),
            "TrainingClient.save_weights_for_sampler": lambda: training.save_weights_for_sampler("more"),
            "TrainingClient.save_weights_external": lambda: training.save_weights_external("external"),
            "TrainingClient.save_weights_and_get_sampling_client": training.save_weights_and_get_sampling_client,
            "TrainingClient.create_sampling_client": lambda: training.create_sampling_client(self.weights),
            "TrainingClient.get_info": training.get_info,
            "TrainingClient.get_tokenizer": training.get_tokenizer,
            "SamplingClient.create": lambda: tinker.SamplingClient.create(sampling.holder, base_model="tiny"),
            "SamplingClient.sample": lambda: sampling.sample(PROMPT, 1, types.SamplingParams(max_tokens=2)),
            "SamplingClient.compute_logprobs": lambda: sampling.compute_logprobs(PROMPT),
            "SamplingClient.get_base_model": sampling.get_base_model,
            "SamplingClient.get_tokenizer": sampling.get_tokenizer,
            "RestClient.assign_session_project": lambda: rest.assign_session_project(self.session, "project"),
            "RestClient.copy_weights": lambda: rest.copy_weights(path, "project"),
            "RestClient.delete_checkpoint": lambda: rest.delete_checkpoint(self.run, self._saved("weights/one")),
            "RestClient.delete_checkpoint_from_tinker_path": lambda: rest.delete_checkpoint_from_tinker_path(
                f"tinker://{self.run}/{self._saved('weights/two')}"
            ),
            "RestClient.export_session_trace": lambda: rest.export_session_trace(self.session),
            "RestClient.get_audit_log": rest.get_audit_log,
            "RestClient.get_billing_usage": lambda: rest.get_billing_usage("2026-01-01", "2026-01-02"),
            "RestClient.get_current_checkpoint_storage_usage": rest.get_current_checkpoint_storage_usage,
            "RestClient.get_external_weights_urls": lambda: rest.get_external_weights_urls(
                f"tinker://{self.run}/external_weights/external"
            ),
            "RestClient.get_sampler": lambda: rest.get_sampler(sampling._sampling_session_id),
            "RestClient.get_server_capabilities": rest.get_server_capabilities,
            "RestClient.get_session": lambda: rest.get_session(self.session),
            "RestClient.get_training_run": lambda: rest.get_training_run(self.run),
            "RestClient.get_training_run_by_tinker_path": lambda: rest.get_training_run_by_tinker_path(path),
            "RestClient.get_weights_info_by_tinker_path": lambda: rest.get_weights_info_by_tinker_path(path),
            "RestClient.list_checkpoints": lambda: rest.list_checkpoints(self.run),
            "RestClient.list_sessions": rest.list_sessions,
            "RestClient.list_training_runs": rest.list_training_runs,
            "RestClient.list_user_checkpoints": rest.list_user_checkpoints,
            "RestClient.publish_checkpoint_from_tinker_path": lambda: rest.publish_checkpoint_from_tinker_path(path),
            "RestClient.search_sessions": lambda: rest.search_sessions(types.SessionSearchRequest()),
            "RestClient.set_checkpoint_ttl_from_tinker_path": lambda: rest.set_checkpoint_ttl_from_tinker_path(
                path, 7200
            ),
            "RestClient.unpublish_checkpoint_from_tinker_path": lambda: rest.unpublish_checkpoint_from_tinker_path(
                path
            ),
            "RestClient.whoami": rest.whoami,
            "AdminClient.get_audit_log": admin.get_audit_log,
            "AdminClient.get_billing_usage": lambda: admin.get_billing_usage("2026-01-01", "2026-01-02"),
            "AdminClient.get_current_checkpoint_storage_usage": admin.get_current_checkpoint_storage_usage,
        }

    def _saved(self, name: str) -> str:
        self.training.save_state(name.rpartition("/")[2]).result()
        return name


def rows(server: LocalServer) -> Iterator[tuple[str, str]]:
    """(call, reaction) for every method, every loss, and options of requests and training clients."""
    clients = Clients(server)
    calls = clients.calls()
    for cls in CLIENTS:
        for name, _ in inspect.getmembers(cls, inspect.isfunction) + inspect.getmembers(cls, inspect.ismethod):
            if name.startswith("_") or name.endswith("_async") or name in LOCAL:
                continue
            label = f"{cls.__name__}.{name}"
            yield label, _reaction(calls[label]) if label in calls else "not known"
    for loss in get_args(types.LossFnType):
        if loss != "custom":  # a client-side loss: forward_backward_custom
            data, options = OF_LOSS.get(loss, (SAMPLED, None))
            training = clients.service.create_lora_training_client("tiny").result()
            yield f"loss {loss}", _reaction(lambda t=training, d=data, n=loss, o=options: t.forward_backward([d], n, o))
    for label, data in (("other targets than the next tokens", OTHER_TARGETS), ("several targets", SEVERAL_TARGETS)):
        yield label, _reaction(lambda d=data: clients.training.forward_backward([d], "cross_entropy"))
    recorded = clients.service.create_sampling_client(base_model="tiny", record_stability_info=True).result()
    short = types.SamplingParams(max_tokens=1)
    yield "record_stability_info=True", _reaction(lambda: recorded.sample(PROMPT, 1, short))
    for label, options in OF_SAMPLING.items():
        yield label, _reaction(lambda o=options: clients.sampling.sample(PROMPT, 1, short, **o))
    for path, body in OF_PATHS.items():
        with httpx.Client(headers={"Authorization": f"Bearer {server.api_key}"}, timeout=DEADLINE_S) as client:
            status = client.post(f"{server.base_url}/{path}", json=body).status_code
        yield path, {200: "served", 400: "refused"}.get(status, f"failed: status {status}")
    create = clients.service.create_lora_training_client
    for part in ("train_mlp", "train_attn", "train_unembed"):
        yield f"{part}=False", _reaction(lambda p=part: create("tiny", **{p: False}))
    yield "rank=4", _reaction(lambda: create("tiny", rank=4))
    dimuon = types.DimuonOptimizerConfig()
    yield "optimizer=AdamOptimizerConfig()", _reaction(lambda: create("tiny", optimizer=types.AdamOptimizerConfig()))
    yield "optimizer=DimuonOptimizerConfig()", _reaction(lambda: create("tiny", optimizer=dimuon))


def _reaction(call: Callable[[], Any]) -> str:
    try:
        result = call()
        if hasattr(result, "result"):
            result.result(timeout=DEADLINE_S)
    except tinker.BadRequestError:
        return "refused"
    except Exception as error:
        if "requires JWT auth" in str(error):  # the SDK itself refuses a plain key
            return "refused"
        return f"failed: {type(error).__name__}: {error}"
    return "served"


def table(server: LocalServer) -> str:
    """The table of the README."""
    reactions: dict[str, list[str]] = {}
    for call, reaction in rows(server):
        reactions.setdefault(reaction, []).append(call)
    lines = ["| reaction | calls of SDK 0.38 |", "|---|---|"]
    for reaction in sorted(reactions, key=lambda name: (name != "served", name)):
        lines.append(f"| {reaction} | {' '.join(f'`{call}`' for call in reactions[reaction])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    os.environ["TINKER_TELEMETRY"] = "0"
    with tempfile.TemporaryDirectory() as state, LocalServer(state=Path(state)) as server:
        text = README.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        README.write_text(before + BEGIN + table(server) + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
