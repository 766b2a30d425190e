"""Log-probabilities of the tokens of a prompt: those that were given, the most probable ones, and requested ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from kernelrl_core.api.errors import UsageError

__all__ = ["PromptQuery", "PromptScores", "Targets", "dense_rows"]


@attrs.frozen(eq=False)
class Targets:
    """A matrix with one row for each token of a prompt after the first: token ids, or their log-probabilities."""

    cells: np.ndarray
    """[n_tokens - 1, n_targets]"""
    listed: tuple[np.ndarray, np.ndarray] | None = None
    """Ends of the rows and column indices of the listed cells, if the request was sparse."""

    @property
    def values(self) -> np.ndarray:
        """The cells, or the listed ones in the order of their rows."""
        if self.listed is None:
            return self.cells
        ends, columns = self.listed
        return np.asarray(self.cells[np.repeat(np.arange(len(self.cells)), np.diff(ends)), columns])


@attrs.frozen(eq=False)
class PromptScores:
    """Result of a `PromptQuery`; None: not requested."""

    logprobs: np.ndarray | None = None
    """[n] log-probabilities of the last n tokens."""
    top: tuple[np.ndarray, np.ndarray] | None = None
    """Most probable tokens in the places of the last n, and their log-probabilities; both [n, k], the best first."""
    targets: Targets | None = None
    """Log-probabilities of the requested tokens; 0 in cells that request nothing."""


@attrs.frozen(eq=False)
class PromptQuery:
    """The log-probabilities that a sampling request wants for its prompt."""

    prompt: tuple[int, ...]
    last: int
    """Number of last tokens that `logprobs` and `top` are about."""
    logprobs: bool
    top: int
    """Number of most probable tokens; 0: none."""
    targets: Targets | None
    """Tokens whose log-probabilities are requested; -1: none."""

    @classmethod
    def from_request(cls, body: Mapping[str, Any], prompt: tuple[int, ...]) -> PromptQuery | None:
        """The query of a sampling request, or None.

        Raises:
            UsageError: the requested tokens do not fit the prompt.
        """
        logprobs, top = bool(body.get("prompt_logprobs")), int(body.get("topk_prompt_logprobs") or 0)
        targets = _read_targets(body.get("target_prompt_logprobs"), len(prompt))
        if not logprobs and top <= 0 and targets is None:
            return None
        last = min(int(body.get("prompt_logprobs_last_n") or len(prompt)), len(prompt) - 1)
        return cls(prompt, last, logprobs, max(top, 0), targets)

    @property
    def positions(self) -> int:
        """Number of last tokens whose distribution `scores` needs."""
        return self.last if self.targets is None else len(self.prompt) - 1

    def scores(self, distribution: Tensor) -> PromptScores:
        """The requested log-probabilities.

        Args:
            distribution: [positions, vocabulary] log-probabilities in the places of the last tokens.

        Raises:
            UsageError: a requested token is not in the vocabulary.
        """
        vocabulary = distribution.shape[1]
        recent = distribution[len(distribution) - self.last :]
        logprobs = top = targets = None
        if self.logprobs:
            given = self.prompt[len(self.prompt) - self.last :]
            ids = torch.tensor(given, dtype=torch.long, device=distribution.device)
            logprobs = recent.gather(1, ids[:, None])[:, 0].cpu().numpy()
        if self.top:
            best = recent.topk(min(self.top, vocabulary), dim=-1)
            top = best.indices.cpu().numpy(), best.values.cpu().numpy()
        if self.targets is not None:
            wanted = self.targets.cells
            if wanted.size and (wanted.max() >= vocabulary or wanted.min() < -1):
                raise UsageError(f"target_prompt_logprobs: tokens must be -1 or less than {vocabulary}")
            ids = torch.from_numpy(wanted.clip(min=0)).to(distribution.device)
            scores = np.where(wanted < 0, 0.0, distribution.gather(1, ids).cpu().numpy())
            targets = Targets(scores, self.targets.listed)
        return PromptScores(logprobs, top, targets)


def _read_targets(sent: Mapping[str, Any] | None, n_tokens: int) -> Targets | None:
    if sent is None:
        return None
    shape, name = tuple(sent.get("shape") or ()), "target_prompt_logprobs"
    if len(shape) != 2 or shape[0] != n_tokens - 1:
        raise UsageError(f"{name}: one row is needed for each of the {n_tokens - 1} tokens after the first")
    values = np.asarray(sent["data"], np.int64)
    if sent.get("sparse_crow_indices") is None:
        return Targets(values.reshape(shape))
    ends, columns = (np.asarray(sent[f"sparse_{part}_indices"], np.int64) for part in ("crow", "col"))
    return Targets(dense_rows(name, values, ends, columns, shape, -1), (ends, columns))


def dense_rows(
    name: str, values: np.ndarray, ends: np.ndarray, columns: np.ndarray, shape: tuple[int, ...], missing: int
) -> np.ndarray:
    """A matrix from its compressed sparse rows.

    Args:
        name: for the error.
        values: [n] the listed cells.
        ends: [rows + 1] 0 and, for each row, the end of its cells in `values`.
        columns: [n] column of each listed cell.
        shape: rows and columns.
        missing: value of the cells that are not listed.

    Raises:
        UsageError: the parts contradict each other.
    """
    sizes = np.diff(ends)
    if (
        len(shape) != 2
        or len(sizes) != shape[0]
        or (sizes < 0).any()
        or not sizes.sum() == len(values) == len(columns)
        or not ((columns >= 0) & (columns < shape[1])).all()
    ):
        raise UsageError(f"{name}: the parts of the sparse tensor contradict each other")
    dense = np.full(shape, missing, values.dtype)
    dense[np.repeat(np.arange(shape[0]), sizes), columns] = values
    return dense
