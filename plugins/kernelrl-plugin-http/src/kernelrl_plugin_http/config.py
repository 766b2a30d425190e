"""Options of the evaluator `http`."""

from __future__ import annotations

import os
from collections.abc import Iterable

import attrs

from kernelrl_core.api import Requires
from kernelrl_core.api.config import MachineFact, PositiveFloat
from kernelrl_core.api.evaluators import SERVICE_VARIABLE, EvaluationSettings, EvaluatorConfig
from kernelrl_plugin_http.address import address_fault, is_service_running, service_urls

__all__ = ["HttpConfig"]

_FIX = f"start one: kernelrl serve --unix; or name servers in evaluator.urls or {SERVICE_VARIABLE}"


@attrs.frozen
class HttpConfig(EvaluatorConfig):
    """Servers of `kernelrl serve` that share the evaluations."""

    urls: tuple[str, ...] = ()
    """Addresses of the servers: `http://HOST:PORT`, `https://HOST`, or `unix:PATH`. All must have equal evaluators.
    Empty: the variable `KERNELRL_SERVICE`; without it, the unix socket of this user's `kernelrl serve --unix`."""
    token_env: str | None = "KERNELRL_SERVICE_TOKEN"
    """Environment variable with the token. Null, or a variable that is not set: no token is sent."""
    timeout_s: PositiveFloat = PositiveFloat(30.0)
    """Seconds without a response after which a server counts as lost, and another one gets its evaluations. How long an
    evaluation takes does not matter."""
    patience_s: PositiveFloat = PositiveFloat(600.0)
    """Seconds without any reachable server after which the run ends. It can be resumed."""

    @property
    def servers(self) -> tuple[str, ...]:
        """Addresses of the servers, without a slash at the end."""
        return tuple(url.rstrip("/") for url in self.urls or service_urls())

    @property
    def token(self) -> str:
        """The token; empty: none."""
        return os.environ.get(self.token_env, "") if self.token_env else ""

    def problems(self) -> Iterable[str]:
        for number, url in enumerate(self.urls):
            if fault := address_fault(url):
                yield f"urls[{number}]: {fault}"
        if len(set(self.servers)) < len(self.servers):
            yield "urls names a server twice"

    def requires(self) -> Requires:
        if not self.servers:
            return Requires(absent=("a running server of kernelrl serve",), fix=_FIX)
        if not self.urls and any(map(address_fault, self.servers)):
            return Requires(
                absent=(f"a usable address in {SERVICE_VARIABLE}",),
                fix=f"export {SERVICE_VARIABLE}=http://127.0.0.1:8790",
            )
        return Requires()

    def settings_here(self, settings: EvaluationSettings) -> EvaluationSettings | None:
        return None

    def found_here(self) -> Iterable[MachineFact]:
        if is_service_running():
            yield MachineFact("service", f"kernelrl check uses {', '.join(self.servers)}")
