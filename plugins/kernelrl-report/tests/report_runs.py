"""Turns and rows for the tests of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.api.checkers import Finding, Severity, Verdict
from kernelrl_core.api.episodes import Extraction, SampleId, Score
from kernelrl_core.api.policies import Message, Prompt
from kernelrl_core.api.rewards import Turn
from kernelrl_core.api.runs import RunDir
from kernelrl_core.api.tasks import Outcome
from kernelrl_testing.core import Journal
from kernelrl_testing.values import make_candidate, make_evaluation, make_reply, make_task, make_turn

KERNEL = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + {}\n"


def a_turn(place: tuple[int, int, int, int], task: str, outcome: Outcome, **fields: Any) -> Turn:
    """A turn with a prompt, a reply with its kernel, feedback and a score."""
    body = KERNEL.format(".".join(map(str, place)))
    source = fields.pop("source", body) if outcome is not Outcome.FORMAT_ERROR else None
    evaluation = None
    if outcome not in (Outcome.FORMAT_ERROR, Outcome.REJECTED, Outcome.INFRA_ERROR):
        evaluation = make_evaluation(outcome, speedup=fields.pop("speedup", None), detail="a complete log")
    extraction = Extraction(
        make_candidate(source) if source else None, "" if source else "no_code", thinking="I think about it."
    )
    plain: dict[str, Any] = {
        "prompt": Prompt((Message("system", "You write kernels."), Message("user", f"Task {task}")), (1, 2, 3)),
        "reply": make_reply(f"<think>I think about it.</think>\n```python\n{source or 'nothing'}```", 12),
        "extraction": extraction,
        "feedback": f"feedback on {outcome.value}",
        "score": Score(1.2, {"correct": 1.0, "compile": 0.2}) if outcome is Outcome.CORRECT else Score(0.0),
    }
    return make_turn(
        outcome, id=SampleId(*place), task=make_task(task, level=1), evaluation=evaluation, **(plain | fields)
    )


def story() -> list[Turn]:
    """Two steps: an episode that feedback repairs, a suspect, a hack, a format error and a fast kernel."""
    suspect = Finding("library_compute", Severity.SUSPECT, "line 5: torch.relu(x)", 5, "source_rules")
    return [
        a_turn((0, 0, 0, 0), "starter/1/add", Outcome.INCORRECT),
        a_turn((0, 0, 0, 1), "starter/1/add", Outcome.CORRECT, speedup=1.5),
        a_turn((0, 0, 1, 0), "starter/1/add", Outcome.FORMAT_ERROR),
        a_turn((0, 1, 0, 0), "starter/2/softmax", Outcome.CORRECT, findings=(suspect,), verdict=Verdict.SUSPECT),
        a_turn((1, 0, 0, 0), "starter/2/softmax", Outcome.CORRECT, speedup=2.5),
        a_turn((1, 0, 1, 0), "starter/2/softmax", Outcome.HACKED),
        a_turn((1, 0, 2, 0), "starter/2/softmax", Outcome.INFRA_ERROR),
    ]


def held_out_story() -> list[Turn]:
    return [
        a_turn((0, 0, 0, 0), "starter/3/gelu", Outcome.COMPILE_ERROR),
        a_turn((2, 0, 0, 0), "starter/3/gelu", Outcome.CORRECT, speedup=1.1),
    ]


def credits_row(sample: str, **values: Any) -> dict[str, Any]:
    step = int(sample.partition(".")[0])
    return {
        "sample": sample,
        "step": step,
        "return": 0.7,
        "advantage": 0.25,
        "masked": False,
        "filtered": False,
    } | values


def metrics_row(step: int, **values: float) -> dict[str, Any]:
    plain = {"progress/done_frac": (step + 1) / 2, "time/total": 1.0, "kernel/correct_rate": 0.5, "reward/mean": 0.4}
    return {"step": step, **plain, **values}


def append(run: RunDir, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    journal = Journal(run.journal_path(name))
    journal.append(rows)
    journal.close()
