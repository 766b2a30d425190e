"""Evaluation of one kernel that no policy wrote, as `kernelrl check` does it.

The lab, `assert_kernel` of the test kit and the adapters call the same functions.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping

import attrs

from kernelrl_core.environment.candidate_evaluator import CandidateEvaluator
from kernelrl_core.environment.scoring import judged_turn, lost_turn
from kernelrl_core.errors import InfrastructureError, KernelRLError
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.prompts.extraction import extract_file
from kernelrl_core.recipe.evaluation_spec import EvaluationSpec
from kernelrl_core.recipe.prerequisites import missing_prerequisites
from kernelrl_core.sources.plain_functions import in_own_file
from kernelrl_core.types import Prompt, Reply, SampleId, Task, Turn
from kernelrl_core.types.seeds import request_seed
from kernelrl_core.types.serialization import to_json

__all__ = ["check_secret", "evaluate_kernel", "find_backends", "why_untimed", "with_timing"]


async def evaluate_kernel(
    evaluator: CandidateEvaluator,
    task: Task,
    text: str,
    *,
    name: str = "",
    package: Mapping[str, str] | None = None,
    secret: bytes | None = None,
) -> Turn:
    """The turn of a kernel: outcome, verdict and findings, without score and feedback. A turn that is lost to an
    infrastructure error is masked.

    Args:
        text: Python source that defines `ModelNew`, or a saved reply.
        name: file of the text, for messages that name a line of it; empty: they say `candidate.py`.
        package: files that the kernel may import; see `EvaluationRequest.package`.
        secret: key of the hidden input seeds; None: that of the evaluator.

    Raises:
        UsageError, MissingPrerequisite: the task is unusable, or this machine cannot evaluate the kernel.
        KernelRLError: a plugin failed.
    """
    where, prompt, reply = SampleId(0, 0, 0, 0), Prompt((), ()), Reply(text, (), (), "stop")
    backend, fences = evaluator.spec.backend.use, evaluator.backend.facts.fences
    try:
        extraction = await asyncio.to_thread(extract_file, text, fences=fences, backend=backend)
        seed = None
        if secret is not None and extraction.candidate is not None:
            seed = request_seed(secret, task.sha256, extraction.candidate.sha256)
        judgement = await evaluator.evaluate(task, extraction, package=package, seed=seed)
    except InfrastructureError as error:
        return lost_turn(where, task, prompt, error, reply=reply)
    turn = judged_turn(where, task, prompt, reply, judgement)
    # Lines of a kernel in a saved reply are not those of the file.
    is_file = turn.candidate is not None and turn.candidate.source.rstrip() == text.rstrip()
    return _in_own_file(turn, text, name) if name and is_file else turn


def _in_own_file(turn: Turn, text: str, name: str) -> Turn:
    """The turn with lines of the file in its message and findings."""
    findings = (attrs.evolve(found, evidence=in_own_file(found.evidence, text, name)) for found in turn.findings)
    return attrs.evolve(turn, message=in_own_file(turn.message, text, name), findings=tuple(findings))


def check_secret(seed: int) -> bytes:
    """The key of the hidden input seeds of a check with a seed."""
    return hashlib.sha256(f"check {seed}".encode()).digest()


def find_backends(source: str, registry: Registry) -> list[str]:
    """The installed backends that find a kernel in a source, those of a host language last.

    Without one, those that find sources in which kernels may be that they cannot read.
    """
    found: list[tuple[bool, str]] = []
    possible: list[tuple[bool, str]] = []
    for component in registry.components("backends"):
        name = registry.label("backends", component)
        try:
            backend = registry.make("backends", Use(name))
            facts = backend.source_facts(source)
            if facts.kernels:
                found.append((backend.facts.host_language, name))
            elif facts.embedded and facts.unread:
                possible.append((backend.facts.host_language, name))
        except (KernelRLError, TypeError, ValueError):  # a plugin that is not installed completely
            continue
    return [name for _, name in sorted(found or possible, key=lambda entry: entry[0])]


def why_untimed(spec: EvaluationSpec, evaluator: Evaluator, registry: Registry) -> str:
    """The reason why this machine cannot time kernels by a specification; empty if it can, or if it is not known."""
    if why := evaluator.why_untimed(spec.backend.use, to_json(spec.backend.options)):
        return why
    timed, untimed = with_timing(spec, True), with_timing(spec, False)
    missing = missing_prerequisites((), timed, registry).keys() - missing_prerequisites((), untimed, registry).keys()
    return f"run times require {', '.join(sorted(missing))}" if missing else ""


def with_timing(spec: EvaluationSpec, timing: bool) -> EvaluationSpec:
    """The specification, with times measured or not."""
    return attrs.evolve(spec, settings=attrs.evolve(spec.settings, timing=timing))
