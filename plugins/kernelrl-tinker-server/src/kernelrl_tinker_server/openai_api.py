"""Tinker's OpenAI-compatible inference: `/oai/api/v1/chat/completions` and `/oai/api/v1/completions`.

The model of a request is a served model, `tinker://RUN/sampler_weights/NAME`, or both, separated by a semicolon. A
streamed reply is sent as one piece, when it is complete.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
from aiohttp import web

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.policies import Message, Reply
from kernelrl_tinker_server.engine import Engine, Weights
from kernelrl_tinker_server.models import ServedModel
from kernelrl_tinker_server.sampling import SamplerBook, make_sampling
from kernelrl_tinker_server.store import CheckpointPath
from kernelrl_tinker_server.worker import Worker

__all__ = ["PREFIX", "OpenAIDoor", "error_body"]

PREFIX = "/oai/api/v1"
_COMPLETION_TOKENS = 16
"""`max_tokens` of `/completions` when a request has none, as in OpenAI's API."""
_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "functions": ([],),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "presence_penalty": (0,),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tools": ([],),
    "top_logprobs": (0,),
}
"""Options that are not supported -> the values without effect, besides null."""


def error_body(message: str, status: int) -> dict[str, Any]:
    """An error in the form of OpenAI's API."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


@attrs.frozen
class _Form:
    """The form of the responses: chat or plain completions."""

    chat: bool

    @property
    def kind(self) -> str:
        return "chat.completion" if self.chat else "text_completion"

    def choice(self, index: int, reply: Reply, text: str, logprobs: Any) -> dict[str, Any]:
        content = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return {"index": index, **content, "logprobs": logprobs, "finish_reason": reply.stop_reason}

    def pieces(self, choice: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The streamed form of a choice."""
        common = {"index": choice["index"], "logprobs": choice["logprobs"]}
        end = {"index": choice["index"], "logprobs": None, "finish_reason": choice["finish_reason"]}
        if self.chat:
            return [{**common, "delta": choice["message"], "finish_reason": None}, {**end, "delta": {}}]
        return [{**common, "text": choice["text"], "finish_reason": None}, {**end, "text": ""}]

    def logprobs(self, reply: Reply, decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
        tokens = [decode([token]) for token in reply.tokens]
        if self.chat:
            rows = [
                {"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": []}
                for token, logprob in zip(tokens, reply.logprobs, strict=True)
            ]
            return {"content": rows, "refusal": None}
        offsets = [sum(map(len, tokens[:index])) for index in range(len(tokens))]
        return {
            "tokens": tokens,
            "token_logprobs": list(reply.logprobs),
            "top_logprobs": None,
            "text_offset": offsets,
        }


class OpenAIDoor:
    """The handlers."""

    def __init__(self, worker: Worker, engine: Engine, samplers: SamplerBook, served: ServedModel) -> None:
        self._worker, self._engine, self._samplers, self._served = worker, engine, samplers, served

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(f"{PREFIX}/models", self.models),
            web.post(f"{PREFIX}/chat/completions", self.chat),
            web.post(f"{PREFIX}/completions", self.complete),
        ]

    async def models(self, request: web.Request) -> web.Response:
        rows = [{"id": name, "object": "model", "created": 0, "owned_by": "local"} for name in self._served.names]
        return web.json_response({"object": "list", "data": rows})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        messages = [_message(one) for one in body["messages"]]
        if not messages:
            raise UsageError("messages is empty", fix="send at least one message")
        return await self._respond(request, body, self._engine.model.render(messages), _Form(chat=True))

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        given = body["prompt"]
        if isinstance(given, str):
            prompt = self._engine.model.encode_reply(given)[:-1]  # the last token is the end of the turn
        elif given and all(isinstance(token, int) for token in given):
            prompt = tuple(given)
        else:
            raise UsageError("prompt must be one text or one list of tokens", fix="send one request for each prompt")
        return await self._respond(request, {"max_tokens": _COMPLETION_TOKENS, **body}, prompt, _Form(chat=False))

    async def _respond(
        self, request: web.Request, body: Mapping[str, Any], prompt: tuple[int, ...], form: _Form
    ) -> web.StreamResponse:
        for name, neutral in _NEUTRAL.items():
            if body.get(name) is not None and body[name] not in neutral:
                raise UsageError(f"this server does not support {name}", fix=f"send the request without {name}")
        if not form.chat and (body.get("logprobs") or 0) > 0:
            raise UsageError("this server does not return the most probable tokens of a reply", fix="send logprobs=0")
        weights = await self._weights(str(body["model"]))
        stop = [body["stop"]] if isinstance(body.get("stop"), str) else list(body.get("stop") or ())
        settings = {
            name: body[name] for name in ("temperature", "top_p", "top_k", "seed") if body.get(name) is not None
        }
        settings["max_tokens"] = body.get("max_completion_tokens") or body.get("max_tokens")
        settings["stop"] = stop or None
        n = 1 if body.get("n") is None else int(body["n"])
        sampling = make_sampling(prompt, settings, n, weights, self._engine, self._served)
        # The model's own stop tokens end a reply too, as in OpenAI's API.
        ends = self._engine.model.stop_tokens | (sampling.stop_tokens or frozenset())
        sampling = attrs.evolve(sampling, stop_tokens=ends)
        replies, _ = await asyncio.wrap_future(self._worker.sample(sampling))
        scored = body.get("logprobs") is not None and body["logprobs"] is not False
        decode = self._engine.model.decode
        choices = [
            form.choice(index, reply, _without_stop(reply.text, stop), form.logprobs(reply, decode) if scored else None)
            for index, reply in enumerate(replies)
        ]
        completed = sum(len(reply.tokens) for reply in replies)
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": completed,
            "total_tokens": len(prompt) + completed,
        }
        head = {"id": f"cmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": body["model"]}
        if not body.get("stream"):
            return web.json_response({**head, "object": form.kind, "choices": choices, "usage": usage})
        head["object"] = "chat.completion.chunk" if form.chat else form.kind
        chunks = [{**head, "choices": [piece]} for choice in choices for piece in form.pieces(choice)]
        if (body.get("stream_options") or {}).get("include_usage"):
            chunks.append({**head, "choices": [], "usage": usage})
        return await _streamed(request, chunks)

    async def _weights(self, name: str) -> Weights:
        base, separator, path = name.partition(";")
        if not separator and name.startswith("tinker://"):
            base, path = "", name
        if base:
            self._served.check(base)
        checkpoint = CheckpointPath.parse(path) if path else None
        return await asyncio.to_thread(self._samplers.load, checkpoint)


async def _streamed(request: web.Request, chunks: Sequence[Mapping[str, Any]]) -> web.StreamResponse:
    """A response of server-sent events."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    for event in [*map(json.dumps, chunks), "[DONE]"]:
        await response.write(f"data: {event}\n\n".encode())
    return response


def _message(sent: Mapping[str, Any]) -> Message:
    role, content = sent["role"], sent["content"]
    if role == "developer":
        role = "system"
    if role not in ("system", "user", "assistant"):
        raise UsageError(
            f"messages: this server does not support the role {role!r}", fix="use system, user or assistant"
        )
    if isinstance(content, list):
        if any(part.get("type") != "text" for part in content):
            raise UsageError("messages: this server supports only text")
        content = "".join(part["text"] for part in content)
    return Message(role, str(content))


def _without_stop(text: str, stop: Sequence[str]) -> str:
    """A reply without the stop text that ended it."""
    ended = [end for end in stop if text.endswith(end)]
    return text[: len(text) - len(max(ended, key=len))] if ended else text
