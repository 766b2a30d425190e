"""The connection to a server: clients, errors in the words of kernelrl, and a watch over whether it still answers.

The SDK retries many failures by itself, some of them without an end. What is awaited through `Service.call` ends: with
a result, with an error, after its time, or when the server has not answered anybody for too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import httpx
import tinker
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential, wait_random
from tinker.lib.retry_handler import RetryConfig

from kernelrl_core.api.errors import InfrastructureError, KernelRLError, MissingPrerequisite, UsageError, nearest

__all__ = ["ServerGone", "Service", "choose_model", "explained"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

_NO_RETRIES = RetryConfig(enable_retry_logic=False)
_KEY = re.compile(r"\b(tml-[\w.+/=~-]{4,}|eyJ[A-Za-z0-9_.-]{20,})")
_START_PATIENCE_S = 10.0
"""Longest wait for somebody at an address that was given: long enough for a server that is just being started."""
_LOOK_S = 3.0
"""Between two looks whether the server is still there."""
_AGAIN_FIX = (
    "mend it, then kernelrl resume RUN, or the same evaluation again; policy.retries, policy.sample_timeout_s and "
    "policy.train_timeout_s are more patient"
)
_KEY_FIX = "export TINKER_API_KEY=… with a key of your account, or write it into .env"


class ServerGone(KernelRLError):
    """The server does not answer any more."""


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
            base_url: None takes the SDK's default.
            api_key: None lets the SDK find it.
            timeout_s: longest time of a call that names none.
            give_up_after_s: longest silence of the server.
            retries: further attempts at what fails.
            say: shows a line to the user.
            revive: starts a server of our own again when it has ended; whether it had.
        """
        self._address, self._api_key = base_url, api_key
        self._timeout_s, self._give_up_after_s = timeout_s, give_up_after_s
        self._retries, self._revive = retries, revive
        self._say = say
        self._retried = 0
        self._client: tinker.ServiceClient | None = None
        self._rest: tinker.RestClient | None = None
        self._watching: list[asyncio.Task[None]] = []
        self._restarted: asyncio.Event = asyncio.Event()
        """Set, and replaced by another, when a server of our own was started again: what it was asked is lost."""
        self._gone: asyncio.Event = asyncio.Event()

    @property
    def name(self) -> str:
        return self._given or "the Tinker service"

    @property
    def _given(self) -> str:
        """An address that was given; empty for the hosted service."""
        return (self._address or os.environ.get("TINKER_BASE_URL") or "").rstrip("/")

    @property
    def client(self) -> tinker.ServiceClient:
        assert self._client is not None, "connect() comes first"
        return self._client

    @property
    def rest(self) -> tinker.RestClient:
        assert self._rest is not None, "connect() comes first"
        return self._rest

    async def connect(self) -> list[Any]:
        """Open a session; the answer is the models that are served.

        Raises:
            MissingPrerequisite: the key is missing, malformed or refused, or nobody is at an address that was given.
            ServerGone: the hosted service does not answer.
        """
        os.environ.setdefault("TINKER_TELEMETRY", "0")
        for name in ("httpx", "tinker"):
            # Every request would be a line of the run's log.
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.getLogger("tinker.lib.internal_client_holder").addFilter(_is_news)

        def open_rest() -> tinker.RestClient:
            return tinker.RestClient(base_url=self._address, api_key=self._api_key)

        def open_session() -> tinker.ServiceClient:
            client = tinker.ServiceClient(base_url=self._address, api_key=self._api_key)
            client.holder  # noqa: B018  # the session is opened by the first look, which blocks
            return client

        await self._reach()
        try:
            async with asyncio.timeout(self._give_up_after_s):
                self._rest = await _in_daemon(open_rest)
                served = (await self._rest.get_server_capabilities()).supported_models
                self._client = await _in_daemon(open_session)
        except Exception as error:
            raise self._unreachable(error) from error
        self._watching.append(asyncio.create_task(self._watch()))
        if self._revive is not None:
            self._watching.append(asyncio.create_task(self._keep_alive(self._revive)))
        return list(served)

    async def _reach(self) -> None:
        """Wait until somebody answers at an address that was given. Asked of the SDK, nobody there takes minutes."""
        if not self._given:
            return
        patience, told = min(_START_PATIENCE_S, self._give_up_after_s), "no answer"
        try:
            async with asyncio.timeout(patience):
                while True:
                    try:
                        await self._knock()
                        return
                    except httpx.TransportError as error:
                        told = str(error) or type(error).__name__
                    await asyncio.sleep(0.5)
        except TimeoutError:
            where = "policy.base_url" if self._address else "TINKER_BASE_URL"
            raise MissingPrerequisite(
                f"policy tinker: {self.name}: no connection ({told}), for {patience:.0f} s",
                fix=f"start the server, or correct {where}",
            ) from None

    async def _knock(self) -> int:
        """Ask at the address that was given for a sign of life; the answer is the status."""
        async with httpx.AsyncClient(timeout=_START_PATIENCE_S) as client:
            return (await client.get(f"{self._given}/api/v1/healthz")).status_code

    def _unreachable(self, error: Exception) -> KernelRLError:
        if isinstance(error, tinker.APIConnectionError | TimeoutError):
            return ServerGone(
                f"no Tinker server answers at {self.name}",
                fix="check policy.base_url and the network, or set policy.server=local",
            )
        return self._explained(error, f"connecting to {self.name}")

    def _explained(self, error: BaseException, doing: str) -> KernelRLError:
        """Whose key it is depends on the server."""
        told = explained(error, doing)
        if not self._given or not isinstance(told, MissingPrerequisite) or told.fix != _KEY_FIX:
            return told
        fix = "export TINKER_API_KEY=… with the key of that server, or write it into .env"
        fix += " (kernelrl tinker-server: its KERNELRL_TINKER_SERVER_KEY)"
        message = told.message
        if not os.environ.get("TINKER_API_KEY") and isinstance(error, tinker.APIStatusError):
            message = f"the server at {self.name} wants an API key, and TINKER_API_KEY is not set ({doing})"
        return MissingPrerequisite(message, fix=fix)

    async def call(self, doing: str, awaitable: Awaitable[T], *, timeout_s: float | None = None) -> T:
        """The result of one call of the SDK.

        Args:
            doing: what is going on, for messages.
            timeout_s: longest time; None: that of the service.

        Raises:
            InfrastructureError: it failed, took too long, or may be tried again.
            ServerGone: the server has been silent for too long.
            UsageError, MissingPrerequisite: the user has to mend something.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        task = asyncio.ensure_future(awaitable)
        silence, restart = asyncio.create_task(self._gone.wait()), asyncio.create_task(self._restarted.wait())
        try:
            events = {task, silence, restart}
            done, _ = await asyncio.wait(events, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if task in done:
                return task.result()
            if silence in done:
                raise ServerGone(
                    f"{self.name} has not answered for {self._give_up_after_s:.0f} s ({doing})",
                    fix="when it is back: kernelrl resume RUN, or the same evaluation again",
                )
            if restart in done:
                raise InfrastructureError(f"{doing} was lost with the server, which was started again")
            raise InfrastructureError(f"{doing} took more than {limit_s:g} s", fix=_AGAIN_FIX)
        except KernelRLError:
            raise
        except Exception as error:
            raise self._explained(error, doing) from error
        finally:
            silence.cancel()
            restart.cancel()
            task.cancel()

    async def retrying(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something again when the infrastructure fails, after growing and jittered pauses."""
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
        """How often something was done again since the last call."""
        taken, self._retried = self._retried, 0
        return taken

    async def tokenizer_files(self, model: str) -> dict[str, str] | None:
        """Files of a model's tokenizer by name; None: it is at the hub."""
        told: Mapping[str, dict[str, str]] = await self._own_answer("tokenizer", model=model)
        return told.get("files")

    async def ratios(self) -> frozenset[str]:
        """Values of `train.ratio`. How other servers compute losses over sequences is not published."""
        told: Mapping[str, list[str]] = await self._own_answer("capabilities")
        return frozenset(told.get("ratios", ("token",)))

    async def _own_answer(self, question: str, **parameters: str) -> Mapping[str, Any]:
        """What a `kernelrl tinker-server` says beside Tinker's API; nothing: it is another server."""
        if not self._given:
            return {}
        headers = {"X-API-Key": self._api_key or os.environ.get("TINKER_API_KEY", "")}

        async def ask() -> httpx.Response:
            try:
                async with httpx.AsyncClient(timeout=_START_PATIENCE_S) as client:
                    return await client.get(f"{self._given}/kernelrl/{question}", params=parameters, headers=headers)
            except httpx.TransportError as error:
                raise InfrastructureError(f"{self.name}: {type(error).__name__}") from error

        answer = await self.retrying(ask)
        try:
            told = answer.json() if answer.is_success else {}
        except ValueError:
            return {}
        return told if isinstance(told, dict) else {}

    async def sampling_client(self, **which: str) -> Any:
        """A sampling client for a `base_model` or a `model_path`; whoever uses it decides how often to ask."""

        async def make() -> Any:
            future = self.client.create_sampling_client(retry_config=_NO_RETRIES, **which)
            return await self.call("a sampling client", future)

        return await self.retrying(make)

    async def _watch(self) -> None:
        """Ask the server for a sign of life now and then."""
        clock = asyncio.get_running_loop().time
        patience = min(30.0, self._give_up_after_s / 4)
        # At the hosted service a look is a request like any other.
        pause = min(_LOOK_S, patience) if self._given else patience
        heard, waiting = clock(), False
        while True:
            await asyncio.sleep(pause)
            try:
                async with asyncio.timeout(patience):
                    await self._sign_of_life()
                heard = clock()
                if waiting:
                    self._say(f"the server at {self.name} answers again")
                waiting = False
            except Exception as error:
                _log.info("no sign of life from %s: %s", self.name, type(error).__name__)
                if not waiting and self._revive is None:
                    left = f"; the run stops after {self._give_up_after_s:.0f} s"
                    self._say(f"waiting for the server at {self.name} ({type(error).__name__}){left}")
                waiting = self._revive is None
            if clock() - heard > self._give_up_after_s:
                self._gone.set()
                return

    async def _sign_of_life(self) -> None:
        if not self._given:
            await self.rest.get_server_capabilities()
        elif (status := await self._knock()) >= 500:
            raise InfrastructureError(f"it answers {status}")

    async def _keep_alive(self, revive: Callable[[], Awaitable[bool]]) -> None:
        """Start a server of our own again as soon as it has ended."""
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
        if self._client is not None:
            try:
                async with asyncio.timeout(5):
                    await self._client.close("success")
            except Exception as error:
                _log.info("the session was not closed: %s", type(error).__name__)


def _is_news(record: logging.LogRecord) -> bool:
    """Of a server that is away the SDK warns every 10 s after 2 minutes; `_watch` has said so, once."""
    return "heartbeat failed" not in record.getMessage()


async def _in_daemon(work: Callable[[], T]) -> T:
    """Do something that blocks, for minutes where nobody answers, in a thread that the end of the process leaves."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failed = None, None
        try:
            result = work()
        except BaseException as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, daemon=True).start()
    return await done


def explained(error: BaseException, doing: str) -> KernelRLError:
    """An error of the SDK in the words of kernelrl: what went wrong, and whose business it is."""
    told, _, fix = _KEY.sub("tml-…", _message(error)).partition("\nfix: ")  # as kernelrl tinker-server says it
    if isinstance(error, tinker.AuthenticationError | tinker.PermissionDeniedError):
        return MissingPrerequisite(f"the server refuses the API key ({doing})", fix=_KEY_FIX)
    if getattr(error, "status_code", None) == 402:
        return MissingPrerequisite(f"the account cannot be charged ({doing}): {told}", fix="set up billing for it")
    if isinstance(error, tinker.BadRequestError | tinker.NotFoundError | tinker.UnprocessableEntityError):
        return UsageError(f"the server refuses {doing}: {told}", fix=fix)
    if isinstance(error, tinker.RequestFailedError) and str(error.category).lower() == "user":
        return UsageError(f"the server refuses {doing}: {told}", fix=fix)
    if isinstance(error, tinker.TinkerError) and "api_key" in told:
        # The SDK looks for a key, and at its form, before anything is sent.
        what = "is malformed: it must begin with tml-" if "prefix" in told else "is missing"
        return MissingPrerequisite(f"the Tinker API key {what}", fix=_KEY_FIX)
    return InfrastructureError(f"{doing} failed: {told}", fix=_AGAIN_FIX)


def _message(error: BaseException) -> str:
    body = getattr(error, "body", None)
    if isinstance(body, dict) and isinstance(body.get("detail"), str):
        return str(body["detail"])
    text = str(error)
    if isinstance(error, tinker.RequestFailedError):
        # The SDK wraps what the server said in words about its own request.
        return text.removeprefix("Request failed: ").partition(" for self.request_id=")[0]
    return text if isinstance(error, tinker.TinkerError) and text else f"{type(error).__name__}: {text}"


def choose_model(wanted: str, served: list[Any], *, training: bool, server: str) -> Any:
    """The entry of the model in what the server lists.

    Raises:
        UsageError: it is not served, or not for what is wanted.
    """
    by_name = {model.model_name: model for model in served if model.model_name}
    found = by_name.get(wanted)
    if found is None:
        close = nearest(wanted, by_name)
        listed = ", ".join(sorted(by_name)) or "none"
        raise UsageError(
            f"policy.model: {server} does not serve {wanted!r}; it serves {listed}",
            fix=f"did you mean {close!r}?" if close else "choose one of these",
        )
    if training and found.trainable is False:
        raise UsageError(f"policy.model: {wanted!r} can be sampled at {server}, but not trained")
    if found.sampleable is False:
        raise UsageError(f"policy.model: {wanted!r} cannot be sampled at {server}")
    return found
