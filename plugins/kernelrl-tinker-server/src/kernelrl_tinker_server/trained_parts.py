"""The parts of a model that a training run trains: Tinker's `train_mlp`, `train_attn` and `train_unembed`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import attrs

from kernelrl_core.api.errors import UsageError

__all__ = ["ALL_PARTS", "TrainedParts", "parameters_of"]

_NAMES = {
    "mlp": re.compile(r"mlp|feed_?forward|ffn|experts|\.fc[12]\.|\.(up|down)\."),
    "attn": re.compile(r"attn|attention|\.(qkv|out)\."),
    "unembed": re.compile(r"lm_head|embed_out|^embedding\."),
}
"""Part -> pattern of its parameters in models from scratch and in those of transformers. In a model from scratch the
output layer is the embedding."""
_NORM = re.compile(r"norm|\.ln_")


@attrs.frozen
class TrainedParts:
    """Which parts are trained. Parameters of no part, such as norms, are always trained."""

    mlp: bool = True
    attn: bool = True
    unembed: bool = True

    @classmethod
    def from_request(cls, config: Mapping[str, Any] | None) -> TrainedParts:
        """The parts in a `lora_config` of Tinker's API, or in the metadata of a checkpoint."""
        return cls(**{part: (config or {}).get(f"train_{part}") is not False for part in _NAMES})

    def to_json(self) -> dict[str, bool]:
        return {f"train_{part}": getattr(self, part) for part in _NAMES}

    def frozen(self, names: Collection[str]) -> frozenset[str]:
        """The names of the parameters that are not trained.

        Raises:
            UsageError: a part that is not trained has no parameters of its own, so it cannot be frozen.
        """
        frozen: set[str] = set()
        for part in _NAMES:
            if getattr(self, part):
                continue
            found = parameters_of(part, names)
            if not found:
                raise UsageError(f"train_{part}=False: this model has no parameters that are known as its {part}")
            frozen |= found
        return frozenset(frozen)


ALL_PARTS = TrainedParts()


def parameters_of(part: str, names: Collection[str]) -> set[str]:
    """The parameters of a part: `mlp`, `attn` or `unembed`."""
    return {name for name in names if _NAMES[part].search(name) and not _NORM.search(name)}
