"""The connection to a server: SDK clients, conversion of SDK errors, and monitoring of the server.

The SDK retries many failures by itself, some without a limit. `Service.call` always ends: with a result, an error, a
timeout, or when the server has not responded to any request for too long.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from textwrap import shorten
from typing import Any, TypeVar

import attrs
import httpx
import tinker
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential, wait_random
from tinker.lib.retry_handler import RetryConfig

from kernelrl_core.api.errors import InfrastructureError, KernelRLError, MissingPrerequisite, UsageError, nearest
from kernelrl_plugin_tinker import sdk

__all__ = ["OwnCapabilities", "ServerGone", "Service", "choose_model", "explained"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

_NO_RETRIES = RetryConfig(enable_retry_logic=False)
_KEY = re.compile(r"\b(tml-[\w.+/=~-]{4,}|eyJ[A-Za-z0-9_.-]{20,})")
_START_PATIENCE_S = 10.0
"""Time limit for the first connection to a given URL: enough for a server that is still starting."""
_LONGEST_TEXT = 400
_REFUSED = (401, 403)
_TOO_MANY = 429
_CHECK_S = 3.0
"""Interval between health checks."""
_AGAIN_FIX = (
    "fix the cause, then kernelrl resume RUN, or repeat the evaluation; higher values of policy.retries, "
    "policy.sample_timeout_s and policy.train_timeout_s retry or wait longer"
)
_KEY_FIX = "export TINKER_API_KEY=… with a key of your account, or write it to .env"


class ServerGone(KernelRLError):
    """The server no longer responds."""

    see = "tinker-server"


@attrs.frozen
class OwnCapabilities:
    """Capabilities that `kernelrl tinker-server` reports beyond Tinker's API; of other servers, those that all have."""

    ratios: frozenset[str]
    """Supported values of `train.ratio`. Other servers do not document losses with sequence ratios."""
    seed_bits: int
    """Bits of a seed. The range of the hosted service is not documented; every server accepts 31 bits."""


class Service:
    """One session with a server."""

    def __init__(
        self,
        *,
        base_url: str | None,
        api_key: str | None,
        timeout_s: float,
        give_up_after_s: float,
        retries: int,
        say: Callable[[str], None] = _log.warning,
        revive: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """
        Args:
            base_url: URL of the server; None: the SDK's default.
            api_key: None: the SDK looks for it.
            timeout_s: default time limit of a call.
            give_up_after_s: longest time without any response of the server.
            retries: maximum number of retries after an infrastructure error.
            say: shows a line to the user.
            revive: restarts the run's own server if it has ended, and returns whether it did.
        """
        self._address, self._api_key = base_url, api_key
        self._timeout_s, self._give_up_after_s = timeout_s, give_up_after_s
        self._retries, self._revive = retries, revive
        self._say = say
        self._retried = 0
        self._client: tinker.ServiceClient | None = None
        self._rest: Any = None
        self._http = httpx.AsyncClient(timeout=_START_PATIENCE_S)
        self._watching: list[asyncio.Task[None]] = []
        self._restarted: asyncio.Event = asyncio.Event()
        """Set, and replaced by a new event, when the run's own server was restarted: its open requests are lost."""
        self._gone: asyncio.Event = asyncio.Event()

    @property
    def name(self) -> str:
        return self._given or "the Tinker service"

    @property
    def _given(self) -> str:
        """The given URL; empty for the hosted service."""
        return (self._address or os.environ.get("TINKER_BASE_URL") or "").rstrip("/")

    @property
    def client(self) -> tinker.ServiceClient:
        assert self._client is not None, "call connect() first"
        return self._client

    @property
    def rest(self) -> Any:
        assert self._rest is not None, "call connect() first"
        return self._rest

    async def connect(self) -> list[Any]:
        """Open a session and return the served models.

        Raises:
            MissingPrerequisite: the key is missing, malformed or refused, or a given URL is unreachable.
            ServerGone: the hosted service does not respond.
        """
        os.environ.setdefault("TINKER_TELEMETRY", "0")
        for name in ("httpx", "tinker"):
            # At level INFO they log every request.
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.getLogger("tinker.lib.internal_client_holder").addFilter(_is_no_heartbeat)

        await self._reach()
        try:
            async with asyncio.timeout(max(self._give_up_after_s, _START_PATIENCE_S)):
                client = tinker.ServiceClient(base_url=self._address, api_key=self._api_key)
                self._rest = await sdk.open_rest(client, base_url=self._address, api_key=self._api_key)
                served = await sdk.served_models(client, self._rest)
                await sdk.open_session(client)
        except Exception as error:
            raise self._unreachable(error) from error
        self._client = client
        self._watching.append(asyncio.create_task(self._watch()))
        if self._revive is not None:
            self._watching.append(asyncio.create_task(self._keep_alive(self._revive)))
        return served

    async def _reach(self) -> None:
        """Wait until a given URL responds as a Tinker server. The SDK itself would retry for minutes."""
        if not self._given:
            return
        patience, failure = min(_START_PATIENCE_S, self._give_up_after_s), "no connection (no response)"
        where = "policy.base_url" if self._address else "TINKER_BASE_URL"
        try:
            async with asyncio.timeout(patience):
                while True:
                    try:
                        response = await self._get("api/v1/get_server_capabilities")
                        if response.status_code in _REFUSED or _lists_models(response):
                            return  # the SDK reports a refused key
                        failure = f"it responds {_described(response)}"
                        if response.status_code < 500 and response.status_code != _TOO_MANY:
                            break
                    except httpx.TransportError as error:
                        failure = f"no connection ({str(error) or type(error).__name__})"
                    await asyncio.sleep(0.5)
        except TimeoutError:
            raise MissingPrerequisite(
                f"policy tinker: {self.name}: {failure}, for {patience:.0f} s",
                fix=f"start the server, or correct {where}",
                see="tinker-server",
            ) from None
        raise MissingPrerequisite(
            f"policy tinker: {self.name} is no Tinker server: to a request for its models {failure}",
            fix=f"correct {where}: the URL without a path such as /v1",
            see="tinker-server",
        )

    async def _get(self, path: str, parameters: Mapping[str, str] | None = None) -> httpx.Response:
        """The response of a given URL to a request without the SDK."""
        headers = {"X-API-Key": self._api_key or os.environ.get("TINKER_API_KEY", "")}
        return await self._http.get(f"{self._given}/{path}", params=parameters, headers=headers)

    async def _health(self) -> int:
        """HTTP status of the health check of a given URL."""
        return (await self._get("api/v1/healthz")).status_code

    def _unreachable(self, error: Exception) -> KernelRLError:
        if isinstance(error, tinker.APIConnectionError | TimeoutError):
            return ServerGone(
                f"no Tinker server responds at {self.name}",
                fix="check policy.base_url and the network, or set policy.server=local",
            )
        return self._explained(error, f"connecting to {self.name}")

    def _explained(self, error: BaseException, doing: str) -> KernelRLError:
        """`explained`, with a fix for the key of a given server in place of the hosted service's."""
        converted = explained(error, doing)
        if not self._given or not isinstance(converted, MissingPrerequisite) or converted.fix != _KEY_FIX:
            return converted
        fix = "export TINKER_API_KEY=… with the key of that server, or write it to .env"
        fix += " (kernelrl tinker-server: its KERNELRL_TINKER_SERVER_KEY)"
        message = converted.message
        if not os.environ.get("TINKER_API_KEY") and isinstance(error, tinker.APIStatusError):
            message = f"the server at {self.name} requires an API key, and TINKER_API_KEY is not set ({doing})"
        return MissingPrerequisite(message, fix=fix, see="tinker-server")

    async def call(self, doing: str, made: Any, *, timeout_s: float | None = None) -> Any:
        """The result of one call of the SDK.

        Args:
            doing: noun phrase for the call, for messages.
            made: the SDK's future of any kind, or a coroutine.
            timeout_s: time limit; None: the service's default.

        Raises:
            InfrastructureError: the call failed or took too long; a retry may succeed.
            ServerGone: the server has not responded for `give_up_after_s`.
            UsageError, MissingPrerequisite: the user must correct something.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        task = asyncio.ensure_future(sdk.outcome(made))
        silence, restart = asyncio.create_task(self._gone.wait()), asyncio.create_task(self._restarted.wait())
        try:
            events = {task, silence, restart}
            done, _ = await asyncio.wait(events, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if task in done:
                return task.result()
            if silence in done:
                raise ServerGone(
                    f"{self.name} has not responded for {self._give_up_after_s:.0f} s ({doing})",
                    fix="when the server is available again: kernelrl resume RUN, or repeat the evaluation",
                )
            if restart in done:
                raise InfrastructureError(f"{doing} was lost, since the local server ended and was restarted")
            raise InfrastructureError(f"{doing} took more than {limit_s:g} s", fix=_AGAIN_FIX, see="tinker-server")
        except KernelRLError:
            raise
        except Exception as error:
            raise self._explained(error, doing) from error
        finally:
            silence.cancel()
            restart.cancel()
            task.cancel()

    async def retrying(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`, retried after infrastructure errors with exponential backoff and jitter."""
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(InfrastructureError),
            stop=stop_after_attempt(self._retries + 1),
            wait=wait_exponential(multiplier=0.5, max=30.0) + wait_random(0.0, 1.0),
            reraise=True,
        )
        async for attempt in attempts:
            with attempt:
                self._retried += attempt.retry_state.attempt_number > 1
                return await work()
        raise AssertionError("tenacity ends with a result or an exception")

    def take_retried(self) -> int:
        """Number of retries since the last call of this method."""
        taken, self._retried = self._retried, 0
        return taken

    async def tokenizer_files(self, model: str) -> dict[str, str] | None:
        """Files of a model's tokenizer by name; None: load it from the hub."""
        fields: Mapping[str, dict[str, str]] = await self._extension("tokenizer", model=model)
        return fields.get("files")

    async def own_capabilities(self) -> OwnCapabilities:
        """Capabilities for which Tinker's API has no field."""
        fields: Mapping[str, Any] = await self._extension("capabilities")
        return OwnCapabilities(frozenset(fields.get("ratios", ("token",))), int(fields.get("seed_bits", 31)))

    async def _extension(self, name: str, **parameters: str) -> Mapping[str, Any]:
        """Response of an endpoint that `kernelrl tinker-server` adds to Tinker's API; empty for other servers."""
        if not self._given:
            return {}

        async def request() -> httpx.Response:
            try:
                return await self._get(f"kernelrl/{name}", parameters)
            except httpx.TransportError as error:
                raise InfrastructureError(f"{self.name}: {type(error).__name__}") from error

        return _fields(await self.retrying(request))

    async def sampling_client(self, **which: str) -> Any:
        """A sampling client for a `base_model` or a `model_path`, without the SDK's retries: callers retry."""

        def make() -> Any:
            return self.client.create_sampling_client(retry_config=_NO_RETRIES, **which)

        return await self.retrying(lambda: self.request("a sampling client", make))

    async def request(self, doing: str, send: Callable[[], Any], *, timeout_s: float | None = None) -> Any:
        """The result of a call that blocks in older versions of the SDK; see `call`."""

        async def sent() -> Any:
            return await sdk.outcome(await sdk.in_daemon(send))

        return await self.call(doing, sent(), timeout_s=timeout_s)

    async def _watch(self) -> None:
        """Check the server periodically; set `_gone` if it has not responded for `give_up_after_s`."""
        clock = asyncio.get_running_loop().time
        patience = min(30.0, self._give_up_after_s / 4)
        # The hosted service has no cheap health check.
        pause = min(_CHECK_S, patience) if self._given else patience
        heard, waiting = clock(), False
        while True:
            await asyncio.sleep(pause)
            try:
                async with asyncio.timeout(patience):
                    await self._check()
                heard = clock()
                if waiting:
                    self._say(f"the server at {self.name} responds again")
                waiting = False
            except Exception as error:
                _log.info("no response from %s: %s", self.name, type(error).__name__)
                if not waiting and self._revive is None:
                    limit = f"; the run stops after {self._give_up_after_s:.0f} s"
                    self._say(f"waiting for the server at {self.name} ({type(error).__name__}){limit}")
                waiting = self._revive is None
            if clock() - heard > self._give_up_after_s:
                self._gone.set()
                return

    async def _check(self) -> None:
        if not self._given:
            await sdk.served_models(self.client, self.rest)
        elif (status := await self._health()) >= 500:
            raise InfrastructureError(f"status {status}")

    async def _keep_alive(self, revive: Callable[[], Awaitable[bool]]) -> None:
        """Restart the run's own server as soon as it has ended."""
        while True:
            await asyncio.sleep(0.2)
            try:
                if await revive():
                    restarted, self._restarted = self._restarted, asyncio.Event()
                    restarted.set()
            except KernelRLError as failed:
                _log.warning("%s", failed.message)
                await asyncio.sleep(5.0)

    async def aclose(self) -> None:
        for task in self._watching:
            task.cancel()
        await self._http.aclose()
        if self._client is not None:
            try:
                async with asyncio.timeout(5):
                    await sdk.close(self._client)
            except Exception as error:
                _log.info("the session was not closed: %s", type(error).__name__)


def _fields(response: httpx.Response) -> Mapping[str, Any]:
    """The JSON object of a successful response; empty for any other response."""
    try:
        fields = response.json() if response.is_success else {}
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _lists_models(response: httpx.Response) -> bool:
    return isinstance(_fields(response).get("supported_models"), list)


def _described(response: httpx.Response) -> str:
    kind = response.headers.get("content-type", "").partition(";")[0]
    return f"{response.status_code} ({kind or 'no content'})"


def _is_no_heartbeat(record: logging.LogRecord) -> bool:
    """False for the SDK's warnings about an unreachable server, one every 10 s: `_watch` has reported it."""
    return "heartbeat failed" not in record.getMessage()


def explained(error: BaseException, doing: str) -> KernelRLError:
    """The error of kernelrl for an error of the SDK; API keys in its text are removed.

    Args:
        doing: noun phrase for the failed call, for the message.
    """
    # kernelrl tinker-server sends the fix on a separate line.
    text, _, fix = _KEY.sub("tml-…", _message(error)).partition("\nfix: ")
    text = shorten(text, _LONGEST_TEXT, placeholder=" …")
    if isinstance(error, AssertionError):
        # The SDK asserts what its own server always sends.
        return UsageError(
            f"tinker {tinker.__version__} cannot read the server's response to {doing}: {text}",
            fix="install the SDK that the server is made for; for SkyRL 0.4: pip install 'tinker<0.26'",
            see="tinker-server",
        )
    if isinstance(error, tinker.AuthenticationError | tinker.PermissionDeniedError):
        return MissingPrerequisite(f"the server refuses the API key ({doing})", fix=_KEY_FIX, see="tinker-key")
    if getattr(error, "status_code", None) == 402:
        return MissingPrerequisite(
            f"the account cannot be charged ({doing}): {text}", fix="set up billing for the account", see="tinker-key"
        )
    if isinstance(error, tinker.BadRequestError | tinker.NotFoundError | tinker.UnprocessableEntityError):
        return UsageError(f"the server refuses {doing}: {text}", fix=fix, see="tinker-server")
    if isinstance(error, tinker.RequestFailedError) and str(error.category).lower() == "user":
        return UsageError(f"the server refuses {doing}: {text}", fix=fix, see="tinker-server")
    if isinstance(error, tinker.TinkerError) and "api_key" in text:
        # The SDK checks the key's presence and form before it sends a request.
        problem = "is malformed: it must begin with tml-" if "prefix" in text else "is missing"
        return MissingPrerequisite(f"the Tinker API key {problem}", fix=_KEY_FIX, see="tinker-key")
    return InfrastructureError(f"{doing} failed: {text}", fix=_AGAIN_FIX, see="tinker-server")


def _message(error: BaseException) -> str:
    body = getattr(error, "body", None)
    detail = body.get("detail") if isinstance(body, dict) else None
    if isinstance(detail, str):
        return detail
    if isinstance(detail, list):
        return "; ".join(map(_invalid_field, detail))
    if isinstance(error, tinker.APIStatusError) and not isinstance(body, dict):
        return f"it responds {_described(error.response)}"  # a page of a proxy or of another kind of server
    text = str(error)
    if isinstance(error, tinker.RequestFailedError):
        # The SDK wraps the server's text in a description of its request.
        return text.removeprefix("Request failed: ").partition(" for self.request_id=")[0]
    return text if isinstance(error, tinker.TinkerError) and text else f"{type(error).__name__}: {text}"


def _invalid_field(entry: Any) -> str:
    """An entry of FastAPI's list of invalid fields."""
    if not isinstance(entry, dict):
        return str(entry)
    where = ".".join(str(part) for part in entry.get("loc", ()))
    return f"{where}: {entry.get('msg', 'invalid')}"


def choose_model(wanted: str, served: list[Any], *, training: bool, server: str) -> Any:
    """The entry of the model in the server's list.

    Raises:
        UsageError: the model is not served, or cannot be sampled, or (with `training`) not trained.
    """
    by_name = {model.model_name: model for model in served if model.model_name}
    found = by_name.get(wanted)
    if found is None:
        close = nearest(wanted, by_name)
        listed = ", ".join(sorted(by_name)) or "none"
        raise UsageError(
            f"policy.model: {server} does not serve {wanted!r}; it serves {listed}",
            fix=f"did you mean {close!r}?" if close else "choose one of these",
            see="tinker-model",
        )
    if training and getattr(found, "trainable", None) is False:
        raise UsageError(f"policy.model: {wanted!r} can be sampled at {server}, but not trained")
    if getattr(found, "sampleable", None) is False:
        raise UsageError(f"policy.model: {wanted!r} cannot be sampled at {server}")
    return found
