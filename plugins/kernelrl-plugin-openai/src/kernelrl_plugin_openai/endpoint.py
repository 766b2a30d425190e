"""HTTP requests to one endpoint: retries, and the error that each failure becomes.

    key refused                 MissingPrerequisite; no retry, the run ends
    request refused             UsageError; no retry, the run ends
    overloaded or unreachable   retries for `patience_s`; then InfrastructureError if another request succeeded
                                meanwhile (the sample is lost), else KernelRLError (the run ends and can be resumed)
    incomplete response         two retries; then InfrastructureError

With `resend: false` a failure that may cost something (timeout, broken connection, incomplete response) is an
InfrastructureError at once.

No message contains the key: it is removed from the endpoint's texts, and SDK exceptions, which hold requests, are not
chained.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import openai
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from kernelrl_core.api.errors import InfrastructureError, KernelRLError, MissingPrerequisite, UsageError, suggestion
from kernelrl_plugin_openai.config import OpenAIConfig

__all__ = ["CHAT", "UNREADABLE", "Endpoint", "IncompleteResponse", "readable_logprob", "stop_reason"]

_LOWEST_LOGPROB = -9999.0
"""Log-probability that endpoints report for a probability of 0, since JSON has no -inf."""

T = TypeVar("T")

CHAT = "/chat/completions"
UNREADABLE = (KeyError, TypeError, IndexError, AttributeError, ValueError, OverflowError)
"""Exceptions of reading a response with another structure."""

_log = logging.getLogger(__name__)

_MAX_INCOMPLETE = 3
_QUIET_S = 10.0
"""Seconds of waiting for the endpoint that are not reported."""
_START_PATIENCE_S = 5.0
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 60.0
_MAX_TEXT = 300
_CONTEXT_LENGTH = re.compile(r"context (?:length|size)(?: is| of)?(?: only)? \(?(\d+)(?: tokens|\))|n_ctx: (\d+)")
"""The context length in the refusals of llama.cpp, vLLM, SGLang and LM Studio."""
_LONGEST_REPLY = re.compile(r"supports at most (\d+) completion tokens")
"""The maximum length of a reply in the refusals of OpenAI and SGLang."""
_NO_API = (404, 405, 501)
"""Statuses of a server without this interface."""
_NOT_SENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout"})
"""Exceptions before a request is sent, by name: the SDK raises those of httpx, and since version 3 those of httpx2."""
_CUT_BY_THE_SERVER = frozenset({"abort", "error"})
"""Values of `finish_reason` in vLLM and SGLang for a reply that the server gave up."""


class IncompleteResponse(Exception):
    """A response without a required field.

    Args:
        message: the missing part; contains no secret.
        fix: correction for the user, if known.
    """

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


_START = "start the server, or correct policy.base_url"
"""The action that solves a missing connection."""


class Unavailable(Exception):
    """The endpoint is overloaded or unreachable; a retry may succeed.

    Args:
        message: the failure; contains no secret.
        wait_s: the delay in seconds that the endpoint requests, if any.
        may_cost: the endpoint may have worked on the request.
        fix: the action that solves it, if it lasts.
    """

    def __init__(self, message: str, wait_s: float | None = None, *, may_cost: bool = False, fix: str) -> None:
        super().__init__(message)
        self.message, self.wait_s, self.may_cost, self.fix = message, wait_s, may_cost, fix


class Endpoint:
    """A client of one endpoint with limited retries."""

    def __init__(self, options: OpenAIConfig) -> None:
        """Raises MissingPrerequisite: the variable `api_key_env` is empty."""
        self._options = options
        self._key = os.environ.get(options.api_key_env, "") if options.api_key_env else ""
        if options.api_key_env and not self._key:
            raise MissingPrerequisite(
                f"policy openai: the environment variable {options.api_key_env} is not set",
                fix=options.requires().fix,
                see="openai",
            )
        # These loggers write a line for every request, and at debug level the request itself.
        for name in ("openai", "httpx", "httpcore", "httpx2", "httpcore2"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._client = openai.AsyncOpenAI(
            base_url=options.base_url, api_key=self._key or "none", max_retries=0, timeout=options.timeout_s
        )
        self._slots = asyncio.Semaphore(options.max_concurrent)
        self._last_response = -1.0
        self._next_report = 0.0

    async def models(self) -> dict[str, Any]:
        """Name -> description of the served models; empty if the endpoint does not list them."""
        try:
            page = await self._client.models.list(timeout=_START_PATIENCE_S)
            return {model.id: model for model in page.data}
        except (openai.OpenAIError, ValueError, TypeError, AttributeError):
            return {}

    async def probe(self, body: Mapping[str, Any], read: Callable[[Any], T], *, path: str = CHAT) -> T:
        """Send a first small request, as `request` does, to find unsupported parameters before the run starts.

        Raises:
            MissingPrerequisite: the endpoint is unreachable, or refuses the key.
            UsageError: the model or a parameter is unknown to the endpoint, or `read` misses a field in the response.
        """
        try:
            patience_s = min(_START_PATIENCE_S, self._options.patience_s)
            return await self.request(body, read, path=path, patience_s=patience_s)
        except InfrastructureError as error:
            raise UsageError(error.message, fix=error.fix, see="openai") from None
        except (UsageError, MissingPrerequisite):
            raise
        except KernelRLError as error:
            cause = error.__cause__
            fix = cause.fix if isinstance(cause, Unavailable) else _START
            raise MissingPrerequisite(error.message, fix=fix, see="openai") from None

    def limit(self, max_tokens: int) -> dict[str, int]:
        """The field that limits the reply's tokens, under this server's name for it."""
        return {"max_completion_tokens" if self._options.server == "openai" else "max_tokens": max_tokens}

    async def request(
        self,
        body: Mapping[str, Any],
        read: Callable[[Any], T],
        *,
        path: str = CHAT,
        patience_s: float | None = None,
        refusals: frozenset[int] = frozenset(),
    ) -> T:
        """The result of one POST request, with retries.

        Args:
            body: fields of the request. `extra_body` is added, and `model` unless the body has it.
            read: extracts the result from the response (decoded JSON, or text if it is not JSON); raises
                `IncompleteResponse` if a part is missing.
            path: path below `base_url`.
            patience_s: overrides the option.
            refusals: further statuses that refuse a request to this path.

        Raises:
            KernelRLError: see the table of this module.
        """
        patience = self._options.patience_s if patience_s is None else patience_s
        began = first_failure = time.monotonic()
        n_incomplete = 0

        def stop(state: RetryCallState) -> bool:
            nonlocal n_incomplete, first_failure
            failure = state.outcome.exception() if state.outcome else None
            n_incomplete += isinstance(failure, IncompleteResponse)
            if state.attempt_number == 1:
                first_failure = time.monotonic()
            if not self._options.resend and _may_cost(failure):
                return True
            return n_incomplete >= _MAX_INCOMPLETE or time.monotonic() + state.upcoming_sleep > began + patience

        retrying = AsyncRetrying(
            retry=retry_if_exception_type((Unavailable, IncompleteResponse)),
            wait=_wait,
            stop=stop,
            before_sleep=self._report_wait,
            reraise=True,
        )
        try:
            async with self._slots:
                began = time.monotonic()
                result: T = await retrying(self._once, path, body, read, refusals)
        except IncompleteResponse as error:
            times = f", {n_incomplete} times" if n_incomplete > 1 else ""
            failure = f"{error}{times}" if error.fix else f"incomplete response{times}: {error}"
            raise InfrastructureError(f"{self._where}: {failure}", fix=error.fix, see="openai") from None
        except Unavailable as error:
            waited = time.monotonic() - began
            failure = f"{self._where}: {error.message}, for {waited:.0f} s"
            if error.may_cost and not self._options.resend:
                raise InfrastructureError(f"{self._where}: {error.message}", fix=error.fix, see="openai") from None
            # A response before the first failure does not show that the endpoint still serves.
            if self._last_response > first_failure:
                raise InfrastructureError(failure) from None
            raise KernelRLError(
                failure,
                fix="wait until the endpoint is available, then continue (kernelrl resume; kernelrl eval with the same "
                "--output; kernelrl optimize with the same arguments); a lower policy.max_concurrent reduces its load, "
                "a higher policy.patience_s retries longer",
                see="openai",
            ) from error
        self._last_response = time.monotonic()
        return result

    async def aclose(self) -> None:
        await self._client.close()

    def _report_wait(self, state: RetryCallState) -> None:
        """Log, once a minute, that requests wait for the endpoint."""
        failure = state.outcome.exception() if state.outcome else None
        now = time.monotonic()
        if state.seconds_since_start is None or state.seconds_since_start < _QUIET_S or now < self._next_report:
            return
        self._next_report = now + _LONGEST_WAIT_S
        _log.warning("%s: %s; retrying for up to %.0f s", self._where, failure, self._options.patience_s)

    @property
    def _where(self) -> str:
        return f"policy openai: {self._options.base_url}"

    async def _once(self, path: str, body: Mapping[str, Any], read: Callable[[Any], T], refusals: frozenset[int]) -> T:
        try:
            response = await self._client.post(
                path,
                body={**self._options.extra_body, "model": self._options.model, **body},
                cast_to=object,
            )
        except openai.APITimeoutError as error:
            message = f"no response within {self._options.timeout_s:g} s"
            raise Unavailable(message, may_cost=_was_sent(error), fix="raise policy.timeout_s") from None
        except openai.APIConnectionError as error:
            message = f"no connection ({self._clean(str(error.__cause__ or error))})"
            raise Unavailable(message, may_cost=_was_sent(error), fix=_START) from None
        except openai.APIStatusError as error:
            raise await self._refused(error, refusals) from None
        except (openai.OpenAIError, ValueError) as error:
            if isinstance(error, json.JSONDecodeError) and error.pos == 0:
                raise self._no_json() from None
            raise IncompleteResponse(self._clean(f"{type(error).__name__}: {error}")) from None
        try:
            found: T = read(response)
            return found
        except UNREADABLE as error:
            if isinstance(response, str):
                raise self._no_json() from None
            raise IncompleteResponse(self._clean(f"unexpected structure ({type(error).__name__}: {error})")) from None

    def _no_json(self) -> IncompleteResponse:
        return IncompleteResponse(
            "the response is not the JSON of an OpenAI-compatible server",
            fix=f"correct policy.base_url, {self._options.base_url}: the URL of the API, up to and including /v1",
        )

    async def _refused(self, error: openai.APIStatusError, refusals: frozenset[int]) -> Exception:
        status, text = error.status_code, self._clean(_message(error))
        if status in (401, 403):
            variable = self._options.api_key_env
            fix = f"check the key in {variable}" if variable else "set policy.api_key_env to the key's variable"
            return MissingPrerequisite(f"{self._where}: the key was refused ({status})", fix=fix, see="openai")
        if error.code == "insufficient_quota":
            # Status 429, as for overload, but a retry cannot succeed.
            return MissingPrerequisite(
                f"{self._where}: the account has no credit left",
                fix="add credit, then continue (kernelrl resume)",
                see="openai",
            )
        is_passing = status in (408, 409, 425, 429) or (status >= 500 and status not in _NO_API)
        if status not in refusals and is_passing:
            fix = "try again later, or raise policy.patience_s"
            return Unavailable(f"status {status} ({text})", _retry_after(error), fix=fix)
        if status == 404 or "model" in text.lower():
            served = await self.models()
            if served and self._options.model not in served:
                hint = suggestion(self._options.model, served)
                return UsageError(f"{self._where} serves no model {self._options.model!r}; {hint}")
        fix = "correct policy.base_url, which must end in /v1" if status in _NO_API else ""
        longest = _LONGEST_REPLY.search(text)
        if longest is not None:
            fix = f"set sampling.max_tokens to at most {longest[1]}"
        elif "max_completion_tokens" in text:
            fix = "set policy.server=openai"
        elif "context" in text.lower():
            fix = _fix_of_length(text)
        return UsageError(f"{self._where} refuses the request ({status}): {text}", fix=fix, see="openai")

    def _clean(self, text: str) -> str:
        """A text of the endpoint on one line of at most 300 characters, without the key."""
        text = text.replace(self._key, "[key]") if self._key else text
        return " ".join(text.split())[:_MAX_TEXT]


def _fix_of_length(text: str) -> str:
    """What to change where an endpoint says that prompt and reply do not fit."""
    found = _CONTEXT_LENGTH.search(text)
    if found is None:
        return "set policy.context_tokens to the context length of the model"
    length = found[1] or found[2]
    return f"set policy.context_tokens below {length}, because prompts are estimated; or serve a longer context"


def _may_cost(failure: BaseException | None) -> bool:
    """Whether the endpoint may have worked on a request that failed."""
    return isinstance(failure, IncompleteResponse) or (isinstance(failure, Unavailable) and failure.may_cost)


def _was_sent(error: openai.APIConnectionError) -> bool:
    return type(error.__cause__).__name__ not in _NOT_SENT


def _wait(state: RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome else None
    requested = failure.wait_s if isinstance(failure, Unavailable) else None
    random: float = wait_random_exponential(multiplier=_FIRST_WAIT_S, max=_LONGEST_WAIT_S)(state)
    # Jitter on top of the requested delay: concurrent requests with the same delay must not retry at the same moment.
    return random if requested is None else min(requested, _LONGEST_WAIT_S) + min(random, 1.0)


def _retry_after(error: openai.APIStatusError) -> float | None:
    try:
        seconds = float(error.response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return seconds if 0 <= seconds < 1e6 else None


def _message(error: openai.APIStatusError) -> str:
    body = error.body
    if isinstance(body, Mapping):
        nested = body.get("error")
        body = nested.get("message") if isinstance(nested, Mapping) else body.get("message") or nested
    if isinstance(body, str):
        return body
    return json.dumps(body) if body else str(error.status_code)


def readable_logprob(value: Any) -> float:
    """A log-probability limited to [-9999, 0]: some servers report -inf, or a value rounded to above 0.

    Raises:
        TypeError, ValueError: the value is not a number, or NaN.
    """
    number = float(value)
    if math.isnan(number):
        raise ValueError("a log-probability is not a number")
    return min(max(number, _LOWEST_LOGPROB), 0.0)


def stop_reason(reason: Any) -> Literal["stop", "length"]:
    """Why a reply ends, from its `finish_reason`.

    Raises:
        IncompleteResponse: the reason is missing, or the server gave the reply up.
    """
    if not isinstance(reason, str):
        raise IncompleteResponse("finish_reason is missing")
    if reason in _CUT_BY_THE_SERVER:
        raise IncompleteResponse(f"the server gave the reply up (finish_reason {reason!r})")
    return "length" if reason == "length" else "stop"
