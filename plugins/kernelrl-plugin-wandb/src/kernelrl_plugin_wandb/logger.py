"""Logger `wandb`: the metrics of a run on Weights & Biases."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from kernelrl_core.api.loggers import Logger
from kernelrl_plugin_wandb.config import WandbConfig
from kernelrl_plugin_wandb.local_data import last_value

__all__ = ["WandbLogger"]

_STEP = "progress/batch"
"""Present in every row of a step, and in no row of a held-out evaluation, to which W&B adds the last `step`."""
_RUN_ID = "wandb_run_id"
"""File in the run directory with the id of the run on W&B."""


class WandbLogger(Logger):
    """Logs to one run of W&B for all processes of a run. The data are also in `wandb` of the run directory."""

    def __init__(self, options: WandbConfig) -> None:
        self._options = options

    def start(self, run_dir: Path, recipe: Mapping[str, Any], first_step: int) -> int:
        known = run_dir / _RUN_ID
        if not known.exists():
            known.write_text(secrets.token_hex(6), encoding="utf-8")
        self._run = wandb.init(
            project=self._options.project,
            entity=self._options.entity,
            name=run_dir.name,
            id=known.read_text(encoding="utf-8"),
            resume="allow",
            mode=self._options.mode,
            config=dict(recipe),
            dir=run_dir,
            # The program around the logger owns the terminal, and its code is none of the user's.
            settings=wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True),
        )
        # W&B counts calls; these axes make a curve independent of their number.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        self._run.define_metric("eval/*", step_metric="eval/step")
        if self._options.mode == "online":
            return int(self._run.summary.get(_STEP, -1)) if self._run.resumed else -1
        return last_value(run_dir / "wandb", _STEP)

    def evaluation(self, results: Mapping[str, Any]) -> None:
        values = {name: value for name, value in results.items() if name != "step"}
        self._run.log({"eval/step": results["step"], **values})

    def step(self, metrics: Mapping[str, Any]) -> None:
        values = {name: value for name, value in metrics.items() if value is not None}
        self._run.log({**values, _STEP: metrics["step"]})

    def finish(self, state: str) -> None:
        self._run.finish(exit_code=int(state == "failed"))
