"""The server that a run with `server: local` starts for itself."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from pathlib import Path

import attrs

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.policies import PolicyContext
from kernelrl_plugin_tinker.config import TinkerConfig
from kernelrl_plugin_tinker.saved import SavedState
from kernelrl_tinker_server.local import LocalServer
from kernelrl_tinker_server.models import warm_started_model

__all__ = ["OwnServer"]

_log = logging.getLogger(__name__)
_STATE = "tinker-server-"


@attrs.frozen
class OwnServer:
    """A server on this machine that ends with the policy. Its files are temporary: checkpoints have copies."""

    server: LocalServer
    model: str
    """Name of its model."""
    model_key: str
    """Name of the model in checkpoints; independent of the machine."""

    @classmethod
    async def start(cls, options: TinkerConfig, context: PolicyContext) -> OwnServer:
        """Create the model, unless it is cached, and start the server.

        Raises:
            InfrastructureError: the server could not be started.
        """
        local = options.local
        arguments: tuple[str, ...] = ("--device", local.device)
        if options.model is not None:
            model = key = options.model
            arguments += ("--lora-rank", str(options.lora_rank), "--dtype", local.dtype)
            if options.context_tokens is not None:
                arguments += ("--context-tokens", str(options.context_tokens))
        else:
            try:
                directory = await warm_started_model(
                    context,
                    width=local.width,
                    layers=local.layers,
                    heads=local.heads,
                    context_tokens=local.context_tokens,
                    vocabulary=local.vocabulary,
                    warm_start_steps=local.warm_start_steps,
                )
            except UsageError as error:  # of policy `torch`, which has the option elsewhere
                error.fix = error.fix.replace("policy.context_tokens", "policy.local.context_tokens")
                raise
            model, key = str(directory), f"from scratch {directory.name}"
        state = await asyncio.to_thread(_fresh_directory, context.run_dir)
        server = LocalServer(state=state, model=model, arguments=arguments)
        await asyncio.to_thread(server.start)
        return cls(server, model, key)

    async def revive(self) -> bool:
        """Restart the server if it has ended; True if it was restarted. Its saved files are still there."""
        if self.server.alive:
            return False
        _log.warning("the local server has ended; restarting it")
        await asyncio.to_thread(self.server.start)
        return True

    def export(self, saved: SavedState, directory: Path) -> None:
        """Copy the server's saved files into a checkpoint."""
        for kind, path in saved.paths():
            self.server.export(path, directory / kind)

    def adopt(self, saved: SavedState, directory: Path) -> None:
        """Copy the files of a checkpoint to the server."""
        for kind, path in saved.paths():
            if (directory / kind).is_dir():
                self.server.adopt(path, directory / kind)

    async def aclose(self) -> None:
        await asyncio.to_thread(self.server.stop)
        await asyncio.to_thread(shutil.rmtree, self.server.state, ignore_errors=True)


def _fresh_directory(run_dir: Path | None) -> Path:
    """A new directory for the server's files; directories of killed servers are removed."""
    for stale in run_dir.glob(f"{_STATE}*") if run_dir is not None else ():
        shutil.rmtree(stale, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=_STATE, dir=run_dir))
