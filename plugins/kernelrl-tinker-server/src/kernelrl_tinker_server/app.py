"""The HTTP handlers: Tinker's API as its SDK (0.38) calls it.

Long requests return an id at once; `retrieve_future` returns the result. A repeated request, whose first response was
lost, is executed only once.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
from aiohttp import web

from kernelrl_core.api.errors import KernelRLError, LookupFailed, UsageError
from kernelrl_core.api.policies import OptimizerSettings, Reply
from kernelrl_plugin_torch.config import RATIOS
from kernelrl_plugin_torch.learner import Datum
from kernelrl_tinker_server.engine import Engine
from kernelrl_tinker_server.models import ServedModel
from kernelrl_tinker_server.openai_api import PREFIX, OpenAIDoor, error_body
from kernelrl_tinker_server.pending import Body, Pendings
from kernelrl_tinker_server.sampling import SamplerBook, read_sampling
from kernelrl_tinker_server.scoring import PromptScores
from kernelrl_tinker_server.store import CheckpointPath, Store
from kernelrl_tinker_server.trained_parts import TrainedParts
from kernelrl_tinker_server.wire import read_training_request, sampled_body, trained_body
from kernelrl_tinker_server.worker import Worker

__all__ = ["make_app"]

_log = logging.getLogger(__name__)

_POLL_S = 30.0
"""Shorter than the SDK's limit for one poll, 45 s."""
_SILENT_S = 900.0
"""Training runs of a session without a heartbeat for this time are removed from memory."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Server:
    """The handlers and their shared state."""

    def __init__(self, worker: Worker, store: Store, served: ServedModel, api_key: str | None) -> None:
        self._worker, self._store, self._served, self._api_key = worker, store, served, api_key
        self._engine: Engine = worker.ready.result()
        self._pendings = Pendings()
        self._samplers = SamplerBook(store, self._engine, served)
        self._heard: dict[str, float] = {}
        """Session -> time of its last heartbeat."""
        self._loaded: set[str] = set()
        """Training runs that the engine has in memory."""

    def routes(self) -> list[web.RouteDef]:
        post, get = web.post, web.get
        one = "/api/v1/training_runs/{run}/checkpoints/{kind}/{name}"
        return [
            get("/api/v1/healthz", self.health),
            get("/kernelrl/capabilities", self.own_capabilities),
            get("/kernelrl/tokenizer", self.tokenizer),
            post("/api/v1/client/config", self.client_config),
            post("/api/v1/client/dynamic_config", self.client_dynamic_config),
            post("/api/v1/telemetry", self.telemetry),
            get("/api/v1/get_server_capabilities", self.capabilities),
            post("/api/v1/create_session", self.create_session),
            post("/api/v1/session_heartbeat", self.heartbeat),
            post("/api/v1/sessions/{session}/finish", self.finish_session),
            post("/api/v1/create_model", self.create_model),
            post("/api/v1/get_info", self.get_info),
            post("/api/v1/load_weights", self.load_weights),
            post("/api/v1/forward_backward", self.forward_backward),
            post("/api/v1/optim_step", self.optim_step),
            post("/api/v1/save_weights", self.save_weights),
            post("/api/v1/save_weights_for_sampler", self.save_weights_for_sampler),
            post("/api/v1/weights_info", self.weights_info),
            post("/api/v1/create_sampling_session", self.create_sampling_session),
            get("/api/v1/samplers/{sampler}", self.sampler),
            post("/api/v1/asample", self.sample),
            post("/api/v1/cancel_future", self.cancel),
            post("/api/v1/retrieve_future", self.retrieve),
            get("/api/v1/training_runs", self.training_runs),
            get("/api/v1/training_runs/{run}", self.training_run),
            get("/api/v1/training_runs/{run}/checkpoints", self.checkpoints),
            get("/api/v1/checkpoints", self.checkpoints),
            get("/api/v1/sessions", self.sessions),
            get("/api/v1/sessions/{session}", self.session),
            web.delete(one, self.delete_checkpoint),
            web.put(f"{one}/ttl", self.set_ttl),
            *OpenAIDoor(self._worker, self._engine, self._samplers, self._served).routes(),
            web.route("*", "/{door:api|oai|anthropic}/{call:.*}", self.not_served),
        ]

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the API key, and convert errors to responses."""
        given = request.headers.get("X-API-Key") or request.headers.get("Authorization", "").removeprefix("Bearer ")
        if request.path != "/api/v1/healthz" and not self._knows_key(given):
            return _refusal(request, "wrong API key", 401)
        try:
            return await handler(request)
        except LookupFailed as error:
            return _refusal(request, str(error), 404)
        except UsageError as error:
            return _refusal(request, str(error), 400)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            problem = f"the request has an unexpected structure: {type(error).__name__}: {error}"
            return _refusal(request, problem, 422)

    def _knows_key(self, given: str) -> bool:
        return self._api_key is None or hmac.compare_digest(given.encode(), self._api_key.encode())

    # --- service and sessions -------------------------------------------------------------------------------------

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def client_config(self, request: web.Request) -> web.Response:
        # A batch is one chunk, and chunks are in order: sums are then rounded alike in every run.
        return web.json_response(
            {
                "parallel_fwdbwd_chunks": False,
                "fwdbwd_max_chunk_len": 100_000,
                "fwdbwd_max_chunk_bytes_count": 1 << 29,
                "sample_max_concurrent_requests": 1000,
            }
        )

    async def client_dynamic_config(self, request: web.Request) -> web.Response:
        return web.json_response({"sample_cancel_enabled": True})

    async def telemetry(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "accepted"})

    async def capabilities(self, request: web.Request) -> web.Response:
        models = [
            {
                "model_name": name,
                "max_context_length": self._engine.model.context_tokens,
                "trainable": True,
                "sampleable": True,
            }
            for name in self._served.names
        ]
        return web.json_response({"supported_models": models})

    async def own_capabilities(self, request: web.Request) -> web.Response:
        """Capabilities that Tinker's API has no field for."""
        return web.json_response({"ratios": sorted(RATIOS), "seed_bits": 64})

    async def tokenizer(self, request: web.Request) -> web.Response:
        """The tokenizer's files. Not part of Tinker's API, whose clients load tokenizers from the hub."""
        self._served.check(request.query["model"])
        return web.json_response({"files": await asyncio.to_thread(self._served.tokenizer_files)})

    async def create_session(self, request: web.Request) -> web.Response:
        session = f"s{uuid.uuid4().hex[:12]}"
        self._heard[session] = time.monotonic()
        return web.json_response({"session_id": session, "type": "create_session"})

    async def heartbeat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self._heard[str(body["session_id"])] = time.monotonic()
        self._drop_silent()
        return web.json_response({"type": "session_heartbeat"})

    async def finish_session(self, request: web.Request) -> web.Response:
        session = request.match_info["session"]
        self._heard[session] = float("-inf")
        self._drop_silent()
        self._store.forget_samplers(session)
        return web.json_response({})

    def _drop_silent(self) -> None:
        limit = time.monotonic() - _SILENT_S
        silent = {session for session, heard in self._heard.items() if heard < limit}
        for run in [run for run in self._loaded if run.partition(":")[0] in silent]:
            self._loaded.discard(run)
            self._worker.do(lambda engine, run=run: engine.forget(run))  # type: ignore[misc]
        for session in silent:
            del self._heard[session]

    # --- training runs --------------------------------------------------------------------------------------------

    async def create_model(self, request: web.Request) -> web.Response:
        body = await request.json()
        run, lora = f"{body['session_id']}:train:{body['model_seq_id']}", body.get("lora_config") or {}
        model, rank, parts = str(body["base_model"]), int(lora.get("rank", 32)), TrainedParts.from_request(lora)
        self._served.check(model)
        self._engine.check_rank(rank)
        _require_adam(body)
        parts.frozen(self._engine.trainable)

        def work(engine: Engine) -> str:
            engine.create(run, parts=parts, seed=lora.get("seed"), rank=rank)
            return run

        self._register(run, model, rank, parts, body.get("user_metadata"))
        return self._later(("create", run), work, lambda run: {"model_id": run, "type": "create_model"}, model_id=run)

    async def load_weights(self, request: web.Request) -> web.Response:
        body = await request.json()
        run = body.get("model_id") or f"{body['session_id']}:train:{body['model_seq_id']}"
        path = CheckpointPath.parse(str(body["path"]))
        about = self._store.about(path)
        model = str(body.get("base_model") or about["model"])
        self._served.check(model)
        _require_adam(body)
        parts = TrainedParts.from_request(about)

        def work(engine: Engine) -> None:
            engine.create(run, *self._store.load(path, optimizer=bool(body["optimizer"])), parts=parts)

        self._register(run, model, about["rank"], parts, body.get("user_metadata"))
        loaded = {"path": str(path), "model_id": run, "type": "load_weights"}
        return self._later(("load", run, body.get("seq_id")), work, lambda _: loaded, model_id=run)

    def _register(self, run: str, model: str, rank: int, parts: TrainedParts, metadata: Any) -> None:
        about = {"model": model, "rank": rank, "user_metadata": metadata, "time": time.time()}
        self._store.put("runs", run, about | parts.to_json())
        self._loaded.add(run)

    async def get_info(self, request: web.Request) -> web.Response:
        run = str((await request.json())["model_id"])
        about = self._run(run)
        return web.json_response(
            {
                "type": "get_info",
                "model_id": run,
                "model_name": about["model"],
                "is_lora": True,
                "lora_rank": about["rank"],
                "model_data": {
                    "arch": self._served.kind,
                    "model_name": about["model"],
                    "tokenizer_id": self._served.tokenizer,
                },
            }
        )

    async def training_run(self, request: web.Request) -> web.Response:
        run = request.match_info["run"]
        return web.json_response(self._run_row(run, self._run(run)))

    async def training_runs(self, request: web.Request) -> web.Response:
        names = self._store.names("runs")
        offset, limit = int(request.query.get("offset", 0)), int(request.query.get("limit", 20))
        shown = names[offset : offset + limit]
        cursor = {"offset": offset, "limit": limit, "total_count": len(names)}
        return web.json_response(
            {"training_runs": [self._run_row(name, self._run(name)) for name in shown], "cursor": cursor}
        )

    def _run(self, run: str) -> dict[str, Any]:
        about = self._store.get("runs", run)
        if about is None:
            raise LookupFailed(f"there is no training run {run!r}")
        return about

    def _run_row(self, run: str, about: dict[str, Any]) -> dict[str, Any]:
        return {
            "training_run_id": run,
            "base_model": about["model"],
            "model_owner": "local",
            "is_lora": True,
            "lora_rank": about["rank"],
            "corrupted": False,
            "last_request_time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(about["time"])),
            "user_metadata": about["user_metadata"],
        }

    async def sessions(self, request: web.Request) -> web.Response:
        """Sessions with a heartbeat, a training run or a sampling session."""
        stored = [name.partition(":")[0] for kind in ("runs", "samplers") for name in self._store.names(kind)]
        names = sorted({*self._heard, *stored})
        offset, limit = int(request.query.get("offset", 0)), int(request.query.get("limit", 20))
        return web.json_response({"sessions": names[offset : offset + limit]})

    async def session(self, request: web.Request) -> web.Response:
        session = request.match_info["session"]
        runs, samplers = (
            [name for name in self._store.names(kind) if name.partition(":")[0] == session]
            for kind in ("runs", "samplers")
        )
        if not runs and not samplers and session not in self._heard:
            raise LookupFailed(f"there is no session {session!r}")
        return web.json_response({"training_run_ids": runs, "sampler_ids": samplers})

    async def not_served(self, request: web.Request) -> web.Response:
        # Not 404, which the SDK explains as a missing checkpoint or session, and not 5xx, which it repeats for minutes.
        raise UsageError(f"this server does not serve {request.method} {request.path}; its README lists the calls")

    async def forward_backward(self, request: web.Request) -> web.Response:
        training = read_training_request(await request.read(), request.headers.get("Content-Encoding", ""))
        self._check_data(training.data)

        def work(engine: Engine) -> bytes:
            run = engine.forward if training.forward_only else engine.backward
            rows, totals = run(
                training.run,
                training.data,
                loss=training.loss,
                bounds=training.bounds,
                ratio=training.ratio,
                beta=training.beta,
            )
            metrics = {"loss:sum": totals.sums["loss"], "entropy:sum": totals.sums["entropy"]}
            return trained_body(rows, training.skipped, metrics | {"tokens:sum": float(totals.tokens)})

        return self._later(("train", training.run, training.number), work, bytes, model_id=training.run)

    def _check_data(self, data: Sequence[Datum]) -> None:
        limit = self._engine.model.context_tokens
        for number, datum in enumerate(data):
            length = len(datum.prompt) + len(datum.reply)
            if length > limit:
                raise UsageError(
                    f"datum {number} has {length} tokens with its last target; the model's context has {limit}",
                    fix="send fewer tokens, or start the server with a greater --context-tokens if the model allows it",
                    see="context",
                )
            self._engine.check_tokens({*datum.prompt, *datum.reply})
            if datum.targets is not None:
                self._engine.check_tokens(np.unique(datum.targets).tolist())

    async def optim_step(self, request: web.Request) -> web.Response:
        body = await request.json()
        run, given = str(body["model_id"]), body.get("adam_params")
        if given is None:
            raise UsageError("this server supports only the Adam optimizer")
        settings = OptimizerSettings(
            learning_rate=given["learning_rate"],
            beta1=given["beta1"],
            beta2=given["beta2"],
            eps=given["eps"],
            weight_decay=given.get("weight_decay", 0.0),
            max_grad_norm=given.get("grad_clip_norm") or None,
        )

        def response(norm: float) -> dict[str, Any]:
            return {"metrics": {"grad_norm:mean": norm} if math.isfinite(norm) else {}}

        key = ("train", run, body.get("seq_id"))
        return self._later(key, lambda engine: engine.update(run, settings), response, model_id=run)

    # --- checkpoints ----------------------------------------------------------------------------------------------

    async def save_weights(self, request: web.Request) -> web.Response:
        body = await request.json()
        run = str(body["model_id"])
        path = CheckpointPath.parse(f"tinker://{run}/weights/{body.get('path') or uuid.uuid4().hex[:8]}")
        about = self._about(run, body)

        def work(engine: Engine) -> dict[str, Any]:
            overwrite = bool(body.get("overwrite"))
            self._store.save(path, engine.weights(run), engine.optimizer(run), about, overwrite=overwrite)
            return {"path": str(path), "type": "save_weights"}

        return self._later(("train", run, body.get("seq_id")), work, dict, model_id=run)

    async def save_weights_for_sampler(self, request: web.Request) -> web.Response:
        body = await request.json()
        run, number = str(body["model_id"]), body.get("sampling_session_seq_id")
        named = body.get("path") or f"unnamed-{number}"
        path = CheckpointPath.parse(f"tinker://{run}/sampler_weights/{named}")
        about = self._about(run, body)

        def work(engine: Engine) -> dict[str, Any]:
            self._store.save(path, engine.weights(run), None, about)
            if body.get("path"):
                return {"path": str(path), "type": "save_weights_for_sampler"}
            sampler = f"{run.partition(':')[0]}:sample:{number}"
            self._samplers.open(sampler, about["model"], path, unnamed=True)
            return {"sampling_session_id": sampler, "type": "save_weights_for_sampler"}

        return self._later(("train", run, body.get("seq_id")), work, dict, model_id=run)

    def _about(self, run: str, body: dict[str, Any]) -> dict[str, Any]:
        known, ttl = self._run(run), body.get("ttl_seconds")
        return {
            "model": known["model"],
            "rank": known["rank"],
            **TrainedParts.from_request(known).to_json(),
            "time": time.time(),
            "expires": None if ttl is None else time.time() + float(ttl),
            "user_metadata": body.get("user_metadata"),
        }

    async def weights_info(self, request: web.Request) -> web.Response:
        body = await request.json()
        about = self._store.about(CheckpointPath.parse(str(body["tinker_path"])))
        parts = TrainedParts.from_request(about).to_json()
        return web.json_response({"base_model": about["model"], "is_lora": True, "lora_rank": about["rank"], **parts})

    async def checkpoints(self, request: web.Request) -> web.Response:
        rows = [found.row() for found in self._store.checkpoints(request.match_info.get("run"))]
        return web.json_response({"checkpoints": rows, "cursor": None})

    async def delete_checkpoint(self, request: web.Request) -> web.Response:
        if not self._store.delete(self._path(request)):
            raise LookupFailed(f"there is no checkpoint {self._path(request)}")
        return web.Response(status=204)

    async def set_ttl(self, request: web.Request) -> web.Response:
        ttl = (await request.json())["ttl_seconds"]
        self._store.set_expiry(self._path(request), None if ttl is None else time.time() + float(ttl))
        return web.Response(status=204)

    def _path(self, request: web.Request) -> CheckpointPath:
        found = request.match_info
        return CheckpointPath.parse(f"tinker://{found['run']}/{found['kind']}/{found['name']}")

    # --- sampling -------------------------------------------------------------------------------------------------

    async def create_sampling_session(self, request: web.Request) -> web.Response:
        body = await request.json()
        sampler = f"{body['session_id']}:sample:{body['sampling_session_seq_id']}"
        path = CheckpointPath.parse(str(body["model_path"])) if body.get("model_path") else None
        model = str(self._store.about(path)["model"] if path else body.get("base_model"))
        self._served.check(model)
        await asyncio.to_thread(self._samplers.open, sampler, model, path)
        return web.json_response({"sampling_session_id": sampler, "type": "create_sampling_session"})

    async def sampler(self, request: web.Request) -> web.Response:
        name = request.match_info["sampler"]
        about = self._samplers.about(name)
        # The SDK loads the tokenizer under the name of the base model.
        model = self._served.tokenizer
        return web.json_response({"sampler_id": name, "base_model": model, "model_path": about["path"]})

    async def sample(self, request: web.Request) -> web.Response:
        body = await request.json()
        sampler = str(body["sampling_session_id"])
        sampling = read_sampling(body, self._samplers.weights(sampler), self._engine, self._served)

        def response(result: tuple[list[Reply], PromptScores]) -> bytes:
            return sampled_body(*result, len(sampling.prompt))

        key = ("sample", sampler, body.get("seq_id"))
        name = self._pendings.add(key, lambda: self._worker.sample(sampling), response)
        ids = [f"{name}-{index}" for index in range(len(sampling.settings))]
        return web.json_response({"request_id": name, "sample_sequence_ids": ids})

    async def cancel(self, request: web.Request) -> web.Response:
        pending = self._pendings.get(str((await request.json())["request_id"]))
        if pending is not None:
            pending.result.cancel()
        return web.Response(status=204)

    # --- results --------------------------------------------------------------------------------------------------

    def _later(
        self,
        key: Hashable,
        work: Callable[[Engine], Any],
        body: Body,
        **named: str,
    ) -> web.Response:
        return web.json_response({"request_id": self._pendings.add(key, lambda: self._worker.do(work), body), **named})

    async def retrieve(self, request: web.Request) -> web.Response:
        name = str((await request.json())["request_id"])
        pending = self._pendings.get(name)
        if pending is None:
            return web.json_response({"detail": "unknown request; was the server restarted?"}, status=410)
        try:
            result = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(pending.result)), _POLL_S)
        except TimeoutError:
            return web.json_response({"type": "try_again", "request_id": name, "queue_state": "active"})
        except (CancelledError, asyncio.CancelledError):
            if not pending.result.done():
                raise  # the client has disconnected
            return web.json_response({"error": "the request was cancelled", "category": "user"})
        except UsageError as error:
            return web.json_response({"error": str(error), "category": "user"})
        except Exception as error:
            _log.exception("a request failed")
            shown = str(error) if isinstance(error, KernelRLError) else f"{type(error).__name__}: {error}"
            return web.json_response({"error": shown, "category": "server"})
        if not pending.fetched:
            pending.fetched, pending.since = True, time.monotonic()
        made = pending.body(result)
        if isinstance(made, bytes):
            return web.Response(body=made, content_type="application/x-protobuf")
        return web.json_response(made)


def _refusal(request: web.Request, problem: str, status: int) -> web.Response:
    """The response to a request that cannot be carried out."""
    openai = request.path.startswith(PREFIX)
    return web.json_response(error_body(problem, status) if openai else {"detail": problem}, status=status)


def _require_adam(body: Mapping[str, Any]) -> None:
    """
    Raises:
        UsageError: the training run requests another optimizer.
    """
    name = (body.get("optimizer_config") or {}).get("type", "adamw")
    if name != "adamw":
        raise UsageError(f"optimizer {name!r}: this server supports only the Adam optimizer")


def make_app(worker: Worker, store: Store, served: ServedModel, *, api_key: str | None = None) -> web.Application:
    """The aiohttp application. `worker.ready` must be done: the model is loaded."""
    server = _Server(worker, store, served, api_key)
    app = web.Application(client_max_size=1 << 30, middlewares=[server.guard])
    app.add_routes(server.routes())
    return app
