"""Options of the evaluator `modal`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import attrs

from kernelrl_core.api import Requires
from kernelrl_core.api.config import NonNegativeFloat, NonNegativeInt, PositiveInt
from kernelrl_core.api.errors import suggestion
from kernelrl_core.api.evaluators import EvaluationSettings, EvaluatorConfig

__all__ = ["EXACT_GPUS", "TOKEN_FIX", "ModalConfig", "is_model_of"]

EXACT_GPUS: Mapping[str, str] = {
    "T4": "T4",
    "L4": "L4",
    "A10": "A10",
    "L40S": "L40S",
    "A100": "A100-40GB",
    "A100-40GB": "A100-40GB",
    "A100-80GB": "A100-80GB",
    "RTX-PRO-6000": "RTX-PRO-6000",
    "H100": "H100!",
    "H200": "H200",
    "B200": "B200",
}
"""GPU type -> the request for exactly that type. Modal may give a larger GPU to a request for `A100` or `H100`. Source:
https://modal.com/docs/guide/gpu. Its `B200+` is excluded: it names two types."""

_LEAST_WINDOW_S, _MOST_WINDOW_S = 2, 3600
"""Range that Modal accepts (`modal.Function.update_autoscaler`)."""
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,40}")
TOKEN_FIX = "modal token new, or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"


@attrs.frozen
class ModalConfig(EvaluatorConfig):
    """GPUs and containers of the app. Each set of options is an app of its own."""

    gpu: str = "H100"
    """GPU type: `T4`, `L4`, `A10`, `L40S`, `A100-40GB` (also `A100`), `A100-80GB`, `RTX-PRO-6000`, `H100`, `H200`,
    `B200`. One GPU per container."""
    max_containers: PositiveInt = PositiveInt(32)
    """Maximum number of containers with a GPU, and of those that build extensions."""
    min_containers: NonNegativeInt = NonNegativeInt(0)
    """Containers with a GPU that are kept, and paid for, while nothing is evaluated."""
    scaledown_window_s: PositiveInt = PositiveInt(60)
    """Seconds after which an idle container ends."""
    mode: Literal["deployed", "ephemeral"] = "deployed"
    """`deployed`: use the app of `kernelrl modal deploy`; `ephemeral`: create the app at the start of the run and end
    it with the run."""
    app: str = "kernelrl"
    """Beginning of the app's name. The rest is a hash of these options, the image and kernelrl's sources."""
    gpu_hour_usd: NonNegativeFloat | None = None
    """Price of a GPU hour in USD, for the cost of the run; see https://modal.com/pricing. Null: unknown."""

    def settings_here(self, settings: EvaluationSettings) -> EvaluationSettings | None:
        return None

    def problems(self) -> Iterable[str]:
        if self.min_containers > self.max_containers:
            yield f"min_containers ({self.min_containers}) is above max_containers ({self.max_containers})"
        if not _LEAST_WINDOW_S <= self.scaledown_window_s <= _MOST_WINDOW_S:
            yield f"scaledown_window_s must be from {_LEAST_WINDOW_S} to {_MOST_WINDOW_S}"
        if not _NAME.fullmatch(self.app):
            yield "app must be at most 41 letters, digits, '.', '_' and '-', beginning with a letter or a digit"

    def requires(self) -> Requires:
        if self.gpu not in EXACT_GPUS:
            what = f"GPU type {self.gpu!r} on Modal; {suggestion(self.gpu, EXACT_GPUS)}"
            return Requires(absent=(what,), fix="choose evaluator.gpu: https://modal.com/docs/guide/gpu")
        return Requires(absent=() if _has_token() else ("a Modal token",), fix=TOKEN_FIX)

    def prices(self) -> Mapping[str, float]:
        return {} if self.gpu_hour_usd is None else {"gpu_hour": self.gpu_hour_usd}

    @property
    def deploy_command(self) -> str:
        """The command that deploys the app."""
        default = type(self)()
        shown = ("gpu", "max_containers", "min_containers", "scaledown_window_s", "app")
        changed = [key for key in shown if getattr(self, key) != getattr(default, key)]
        return " ".join(["kernelrl modal deploy", *(f"{key}={getattr(self, key)}" for key in changed)])


def is_model_of(gpu: str, model: str) -> bool:
    """Whether a GPU that its driver calls `model` is of a type: `NVIDIA A100-SXM4-40GB` is an `A100-40GB`."""
    words = set(re.split(r"[^A-Z0-9]+", model.upper()))
    # Amazon's variant of the A10 is the A10G.
    return all({part, f"{part}G"} & words for part in EXACT_GPUS[gpu].rstrip("!").split("-"))


def _has_token() -> bool:
    """Whether a token is configured, as Modal's client looks for it. Contacts no server."""
    if os.environ.get("MODAL_TOKEN_ID") and os.environ.get("MODAL_TOKEN_SECRET"):
        return True
    path = Path(os.environ.get("MODAL_CONFIG_PATH") or "~/.modal.toml").expanduser()
    try:
        return re.search(r"^\s*(token_id|oauth_refresh_token)\s*=", path.read_text(), re.MULTILINE) is not None
    except OSError:
        return False
