"""Seeds derived by hashing: equal arguments give equal seeds, in every process and after a resume."""

from __future__ import annotations

import hashlib
import json

from kernelrl_core.types.turns import SampleId

__all__ = ["derived_seed", "request_seed", "sample_seed"]


def derived_seed(run_seed: int, purpose: str, *parts: int | str) -> int:
    """Seed for one purpose within a run, from 0 to 2**63 - 1."""
    # JSON delimits the parts, so that ("a", "bc") and ("ab", "c") differ.
    question = json.dumps([run_seed, purpose, *parts])
    return int.from_bytes(hashlib.blake2b(question.encode(), digest_size=8).digest(), "big") >> 1


def sample_seed(run_seed: int, purpose: str, sample: SampleId, task_id: str) -> int:
    """Seed of one reply. `purpose` separates training from held-out evaluation."""
    return derived_seed(run_seed, purpose, sample.step, task_id, sample.task_index, sample.attempt, sample.turn)


def request_seed(secret: bytes, task_sha256: str, source_sha256: str) -> str:
    """Seed of the judge's inputs: a keyed hash, 128 bits in hexadecimal, unpredictable without the secret."""
    return hashlib.blake2b(f"{task_sha256} {source_sha256}".encode(), digest_size=16, key=secret[:64]).hexdigest()
