"""Embedding models, with the prefixes that they expect. Imports torch when a model is loaded."""

from __future__ import annotations

import contextlib
import importlib.metadata
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from kernelrl_core.api.errors import MissingPrerequisite, UsageError

__all__ = ["PREFIXES", "Embedder", "Prefixes", "Vectors"]

Vectors = npt.NDArray[np.float32]

MAX_TOKENS = 2048
"""Longest text that is embedded, if the model takes more. A longer text is cut, as the published builder does."""
_TOKENS_PER_BATCH = {"cpu": 8_192, "cuda": 131_072}
_PROBE = "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
_INSTALL = "pip install 'kernelrl-plugin-raicl[dense]'"


@attrs.frozen
class Prefixes:
    """Texts before a query and before a document."""

    query: str = ""
    document: str = ""


_TASK = "Given a PyTorch program, retrieve PyTorch programs that compute the same or a similar function."

PREFIXES: Mapping[str, Prefixes] = {
    "bge-code-v1": Prefixes(query=f"<instruct>{_TASK}\n<query>"),
    "nomic-embed-code": Prefixes(query="Represent this query for searching relevant code: "),
    "jina-code-embeddings-0.5b": Prefixes(
        query="Find an equivalent code snippet given the following code snippet:\n",
        document="Candidate code snippet:\n",
    ),
    "jina-code-embeddings-1.5b": Prefixes(
        query="Find an equivalent code snippet given the following code snippet:\n",
        document="Candidate code snippet:\n",
    ),
    "Qwen3-Embedding-0.6B": Prefixes(query=f"Instruct: {_TASK}\nQuery:"),
    "Qwen3-Embedding-4B": Prefixes(query=f"Instruct: {_TASK}\nQuery:"),
    "Qwen3-Embedding-8B": Prefixes(query=f"Instruct: {_TASK}\nQuery:"),
}
"""Last part of a model's name -> prefixes, from the model cards."""


class Embedder:
    """A model of sentence-transformers. Embeddings have the norm 1. Safe to use in several threads.

    The prefixes are those of `PREFIXES`, by the last part of the name. A model that is not in the table has the prompts
    `query` and `document` of its own configuration, or no prefixes.

    Args:
        name: name on the hub of Hugging Face, or a directory.
        device: `cpu`, or a CUDA device; bfloat16 on CUDA, float32 on a CPU.
        prefixes: prefixes of an index, instead of the model's.
        max_tokens: limit of an index, instead of the model's.

    Raises:
        MissingPrerequisite: sentence-transformers is not installed, or the model cannot be loaded.
    """

    def __init__(
        self, name: str, *, device: str = "cpu", prefixes: Prefixes | None = None, max_tokens: int | None = None
    ) -> None:
        self.name = str(Path(name).resolve()) if Path(name).is_dir() else name
        self._lock = threading.Lock()
        self._lease = _shared_device(device)
        self._model = _load(self.name, device)
        self._model.max_seq_length = min(self._model.max_seq_length or MAX_TOKENS, max_tokens or MAX_TOKENS)
        self.max_tokens = int(self._model.max_seq_length)
        """Longest text in tokens; longer ones are cut."""
        self.prefixes = prefixes or _prefixes(self.name, self._model.prompts)
        self._batch_tokens = _TOKENS_PER_BATCH["cpu" if device == "cpu" else "cuda"]
        self.probe = self.documents([_PROBE])[0]
        """[dimension] embedding of a fixed text: another model has another probe."""

    @property
    def dimension(self) -> int:
        """Numbers per embedding."""
        return len(self.probe)

    def facts(self) -> dict[str, Any]:
        """Name, versions, prefixes and dimension, for the manifest."""
        config = getattr(getattr(self._model[0], "auto_model", None), "config", None)
        return {
            "embedder": self.name,
            "revision": getattr(config, "_commit_hash", None) or "",
            "embedder_library": f"sentence-transformers {importlib.metadata.version('sentence-transformers')}",
            "query_prefix": self.prefixes.query,
            "document_prefix": self.prefixes.document,
            "max_tokens": self.max_tokens,
            "dimension": self.dimension,
        }

    def documents(self, texts: Sequence[str]) -> Vectors:
        """[texts, dimension] embeddings. Texts of similar length should be together: a batch has one padded length."""
        longest = max((len(text) for text in texts), default=0) // 3 + 1
        batch = max(1, min(512, self._batch_tokens // min(longest, self.max_tokens)))
        return self._encode(texts, self.prefixes.document, batch)

    def query(self, text: str) -> Vectors:
        """[dimension] embedding of a query."""
        found: Vectors = self._encode([text], self.prefixes.query, 1)[0]
        return found

    def _encode(self, texts: Sequence[str], prefix: str, batch: int) -> Vectors:
        with self._lock, self._lease.shared() if self._lease is not None else contextlib.nullcontext():
            found = self._model.encode(
                list(texts),
                prompt=prefix,
                batch_size=batch,
                normalize_embeddings=True,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        return np.ascontiguousarray(found, dtype=np.float32)


def _load(name: str, device: str) -> Any:
    try:
        import torch
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging
    except ImportError as error:
        raise MissingPrerequisite(f"embedder {name}: {error}", fix=_INSTALL, see="embedder") from None
    if device != "cpu" and not torch.cuda.is_available():
        raise MissingPrerequisite(
            f"embedder {name}: no CUDA device for device {device!r}", fix="use device cpu", see="embedder"
        )
    kwargs = {} if device == "cpu" else {"dtype": torch.bfloat16}
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # a table of unused weights
    logging.disable_progress_bar()
    try:
        return SentenceTransformer(name, device=device, model_kwargs=kwargs)
    except Exception as error:  # code of several libraries: hub, network, files, configuration
        raise MissingPrerequisite(
            f"embedder {name} cannot be loaded: {type(error).__name__}: {' '.join(str(error).split())[:300]}",
            fix=f"hf download {name}, or give the directory of a local copy: --embedder DIR",
            see="embedder",
        ) from None
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _prefixes(name: str, prompts: Mapping[str, str] | None) -> Prefixes:
    known = {key.lower(): value for key, value in PREFIXES.items()}
    found = known.get(Path(name).name.lower())
    return found or Prefixes((prompts or {}).get("query", ""), (prompts or {}).get("document", ""))


def _shared_device(device: str) -> Any:
    """The lease of a CUDA device: embedding must not disturb the timing of kernels. None for the CPU."""
    if device == "cpu":
        return None
    if not device.startswith("cuda"):
        raise UsageError(f"device {device!r}: expected cpu, cuda or cuda:N")
    try:
        import torch
    except ImportError as error:
        raise MissingPrerequisite(str(error), fix=_INSTALL, see="embedder") from None
    if not torch.cuda.is_available():
        return None
    from kernelrl_core.api.policies import DeviceLease, gpu_device_name

    return DeviceLease(gpu_device_name(str(torch.cuda.get_device_properties(device).uuid)))
