"""An OpenAI-compatible server on 127.0.0.1 for tests: a function writes the replies, and failures can be injected."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

WriteReply = Callable[[list[dict[str, str]]], str]

LOGPROB = -0.25
"""Log-probability of every token."""


class OpenAIServer:
    """Serves the model `tiny`. A token is a word with the white space after it.

    Args:
        write_reply: function from the messages to the text of the reply.
        key: the required API key; error messages repeat it, as some real servers do. Empty: no key.
        max_model_len: the context length that `/models` reports; None: not reported.
    """

    def __init__(self, write_reply: WriteReply, *, key: str = "", max_model_len: int | None = 100_000) -> None:
        self.write_reply, self.key, self.max_model_len = write_reply, key, max_model_len
        self.requests: list[dict[str, Any]] = []
        """Bodies of all completion requests, including refused ones."""
        self.fail: Callable[[dict[str, Any]], str] = lambda body: ""
        """Request body -> failure: none (empty), `429`, `quota`, `500`, `long` (400), `drop` (no response), `broken`
        (the connection closes within the response), `half` (a complete response with half of its JSON),
        `no_choices`, `not_json`, `aborted` (a reply that the server gave up, as vLLM and SGLang mark it)."""
        self.complete: Callable[[dict[str, Any]], tuple[list[int], list[float], str]] | None = None
        """As in vLLM: continues the token ids of a prompt with an adapter; returns tokens, log-probabilities, text."""
        self.adapters: dict[str, str] = {}
        """As in vLLM: name of a loaded adapter -> directory of its files."""
        self.max_lora_rank = 16
        """As in vLLM: adapters of a higher rank cannot be loaded."""
        self.logprobs = True
        self.reasoning = ""
        self.refusal: dict[str, Any] = {"error": {"message": "This model's maximum context length is 10 tokens."}}
        """Body of the response to a request that is too long."""
        self.model_facts: dict[str, Any] = {}
        """Further fields of the model in `/models`."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server._models(self)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self.path.endswith("_lora_adapter"):
                    server._adapter(self, body)
                else:
                    server._completion(self, body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _models(self, http: BaseHTTPRequestHandler) -> None:
        model = {"id": "tiny", "object": "model", "created": 0, "owned_by": "test", **self.model_facts}
        if self.max_model_len is not None:
            model["max_model_len"] = self.max_model_len
        adapters = [{**model, "id": name, "parent": "tiny", "max_model_len": None} for name in self.adapters]
        _send(http, 200, {"object": "list", "data": [model, *adapters]})

    def _adapter(self, http: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        if self.complete is None:
            return _send(http, 404, {"detail": "Not Found"})
        name = body["lora_name"]
        if http.path.endswith("/unload_lora_adapter"):
            self.adapters.pop(name)
        elif name in self.adapters or not Path(body["lora_path"], "adapter_config.json").is_file():
            return _send(http, 400, {"error": {"message": f"cannot load {name}"}})
        else:
            rank = json.loads(Path(body["lora_path"], "adapter_config.json").read_text())["r"]
            if rank > self.max_lora_rank:
                message = f"LoRA rank {rank} is greater than max_lora_rank {self.max_lora_rank}."
                return _send(http, 500, {"error": {"message": message, "type": "InternalServerError", "code": 500}})
            self.adapters[name] = body["lora_path"]
        return _send(http, 200, f"Success: {name}".encode(), kind="")

    def _completion(self, http: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        self.requests.append(body)
        sent = http.headers.get("authorization", "")
        if self.key and sent != f"Bearer {self.key}":
            return _send(http, 401, {"error": {"message": f"Incorrect key provided: {sent}"}})
        if body["model"] not in ("tiny", *self.adapters):
            return _send(http, 404, {"error": {"message": f"The model {body['model']} does not exist."}})
        failure = self.fail(body)
        if failure == "429":
            return _send(http, 429, {"error": {"message": f"Slow down, {sent}"}}, {"retry-after": "0.05"})
        if failure == "quota":
            error = {"message": "You exceeded your current quota.", "code": "insufficient_quota"}
            return _send(http, 429, {"error": error})
        if failure == "500":
            return _send(http, 500, {"error": {"message": f"boom for {sent}"}})
        if failure == "long":
            return _send(http, 400, self.refusal)
        if failure == "drop":
            http.close_connection = True
            return None
        if failure == "not_json":
            return _send(http, 200, b"<html>a page of a proxy</html>")
        if failure == "no_choices":
            return _send(http, 200, {"id": "1", "choices": []})
        response = self._reply(body)
        if failure == "aborted":
            response["choices"][0]["finish_reason"] = "abort"
        reply = json.dumps(response).encode()
        return _send(http, 200, reply[: len(reply) // 2] if failure == "half" else reply, broken=failure == "broken")

    def _reply(self, body: dict[str, Any]) -> dict[str, Any]:
        if "prompt" in body:
            assert self.complete is not None
            tokens, logprobs, text = self.complete(body)
            reason = "length" if len(tokens) == body["max_tokens"] else "stop"
            choice = {"text": text, "token_ids": tokens, "logprobs": {"token_logprobs": logprobs}}
            return {"id": "cmpl-1", "object": "text_completion", "choices": [{**choice, "finish_reason": reason}]}
        words = re.findall(r"\s*\S+\s*", self.write_reply(body["messages"]))
        limit = body.get("max_tokens", body.get("max_completion_tokens"))
        shown = words if limit is None else words[:limit]
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": "".join(shown)},
            "finish_reason": "stop" if shown == words else "length",
        }
        if self.reasoning:
            choice["message"]["reasoning_content"] = self.reasoning
        if body.get("logprobs") and self.logprobs:
            choice["logprobs"] = {"content": [{"token": word, "logprob": LOGPROB} for word in shown]}
        if body.get("return_token_ids"):
            choice["token_ids"] = [len(word) for word in shown]
        usage = {"prompt_tokens": 1, "completion_tokens": len(shown), "total_tokens": 1 + len(shown)}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": "tiny",
            "choices": [choice],
            "usage": usage,
        }


def _send(
    http: BaseHTTPRequestHandler,
    status: int,
    content: Any,
    headers: dict[str, str] | None = None,
    broken: bool = False,
    kind: str = "application/json",
) -> None:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    http.send_response(status)
    if kind:
        http.send_header("content-type", kind)
    http.send_header("content-length", str(len(data)))
    for name, value in (headers or {}).items():
        http.send_header(name, value)
    http.end_headers()
    http.wfile.write(data[: len(data) // 2] if broken else data)
    if broken:
        http.close_connection = True
