"""Which kernels computed an output: the nodes of a recording, and a replay with the candidate's own kernels disabled.

The list of nodes comes from the runner, where native code of a candidate could forge it (`docs/security.md`). It cannot
forge the output of the replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelrl_core.api.evaluators import Finding
from kernelrl_judge.peer.replay import CandidateSession
from kernelrl_judge.probes.no_op import comes_by_itself
from kernelrl_judge.protocol.findings import finding
from kernelrl_judge.task.comparing import Tolerance, compare_values
from kernelrl_judge.task.reference import Trial

__all__ = ["LIBRARY_SHARE", "ownership"]

LIBRARY_SHARE = 0.05
"""Of the device time: library kernels with a larger share compute."""
_SHOWN = 16


def ownership(
    session: CandidateSession, trials: Sequence[Trial], limit: Tolerance
) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Facts for the profile of an evaluation, and findings. The last passes of a runner.

    `own_kernel_share`: share of the device time that is gone without the candidate's own kernels.
    `library_kernel_share`: of the rest, the share of library kernels among the launches that are not own.
    `device_kernels`: names, launches and origins. `library_kernels`: names.

    Args:
        trials: two, of different inputs: what the pass with all kernels leaves is wrong in the pass without them.
    """
    calls = len(session.described)
    library = [name for name, kind, _ in session.nodes if kind == "library"]
    launches = {kind: sum(count for _, of, count in session.nodes if of == kind) for kind in ("own", "library", "glue")}
    shown = [
        {"name": name, "origin": kind, "calls": max(1, count // calls)}
        for name, kind, count in sorted(session.nodes, key=lambda row: -row[2])[:_SHOWN]
    ]
    session.write([trials[0].inputs] * calls)
    with_us = session.run().calls_us
    session.write([trials[1].inputs] * calls)
    session.switch(0, own=False)
    without_us = session.run().calls_us
    own_share = min(1.0, max(0.0, 1 - without_us / max(with_us, 1e-9))) if launches["own"] else 0.0
    others = launches["library"] + launches["glue"]
    library_share = (1 - own_share) * launches["library"] / others if others else 0.0
    facts = {
        "device_kernels": shown,
        "own_kernel_share": own_share,
        "library_kernel_share": library_share,
        "library_kernels": library[:4],
    }
    if library_share > LIBRARY_SHARE:
        facts["computing_operators"] = library[:_SHOWN]
    if not launches["own"]:
        return facts, ()
    trial = trials[1]
    right = compare_values(trial.expected, session.output(trial.expected, 0), limit) is None
    if not right or comes_by_itself(trial):
        return facts, ()
    named = ", ".join([name for name, kind, _ in session.nodes if kind == "own"][:4])
    evidence = f"the output is right although {named} did not run"
    return facts, (finding("decoy_kernels", evidence),)
