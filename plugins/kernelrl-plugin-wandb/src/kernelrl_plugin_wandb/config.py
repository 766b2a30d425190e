"""Options of logger `wandb`."""

from __future__ import annotations

import netrc
import os
from collections.abc import Iterable
from typing import Literal
from urllib.parse import urlsplit

import attrs

from kernelrl_core.api import Requires
from kernelrl_core.api.loggers import LoggerConfig

__all__ = ["WandbConfig"]


@attrs.frozen
class WandbConfig(LoggerConfig):
    """Options of logger `wandb`."""

    check_options = {"project": "check", "mode": "offline"}  # noqa: RUF012

    project: str = ""
    """Project on W&B. Required."""
    entity: str | None = None
    """User or team that owns the project; null: the default of the account."""
    mode: Literal["online", "offline"] = "online"
    """`offline` needs no key: the data stay in the run directory until `wandb sync` uploads them."""

    def problems(self) -> Iterable[str]:
        if not self.project:
            yield "project: name the project on W&B"

    def requires(self) -> Requires:
        if self.mode == "offline" or _has_login():
            return Requires()
        return Requires(
            environment=("WANDB_API_KEY",), fix="export WANDB_API_KEY=…, or wandb login, or mode: offline of the logger"
        )


def _has_login() -> bool:
    """Whether `wandb login` has stored a key for the server."""
    server = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(server) is not None
    except (OSError, netrc.NetrcParseError):
        return False
