"""The recipe: all keys of a training run."""

from __future__ import annotations

from typing import Any

import attrs

from kernelrl_core.plugins.registry import registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.schema.attempts import EpisodeSettings, HistorySettings, PromptSettings, SamplingOptions
from kernelrl_core.recipe.schema.costs import CostSettings
from kernelrl_core.recipe.schema.curricula import CurriculumSettings
from kernelrl_core.recipe.schema.judgements import EvalSettings, VerdictSettings, VerifySettings
from kernelrl_core.recipe.schema.learning import DemonstrationSettings, ReturnSettings, TrainSettings
from kernelrl_core.recipe.schema.uses import RetrieverUse, RewardUse
from kernelrl_core.types import EvaluationSettings
from kernelrl_core.types.numbers import NonNegativeInt

__all__ = ["Recipe"]


def _declared(kind: str) -> Any:
    """A field whose default is the component that a plugin declares as the default of its kind
    (`Component.default`)."""
    return attrs.field(factory=lambda: registry().declared(kind), metadata={"declared": kind})


@attrs.frozen
class Recipe:
    """One training run."""

    tasks: Use
    """Task source."""
    backend: Use
    """Kernel language, and how it is built."""
    policy: Use
    """Model that is trained, with its sampler."""
    rewards: dict[str, RewardUse]
    """Reward components, each under a name of your choice. The score of a turn is their weighted sum."""
    seed: NonNegativeInt = NonNegativeInt(0)
    """Seed of all random choices of the run, except the hidden inputs of the judge."""
    evaluator: Use = _declared("evaluators")
    """Where candidates are evaluated."""
    evaluation: EvaluationSettings = EvaluationSettings()
    """How candidates are evaluated: precision, trials, limits, timing, probes."""
    prompt: PromptSettings = PromptSettings()
    sampling: SamplingOptions = SamplingOptions()
    episode: EpisodeSettings = EpisodeSettings()
    history: HistorySettings = HistorySettings()
    returns: ReturnSettings = ReturnSettings()
    advantage: Use = _declared("advantages")
    """Advantage estimator."""
    checkers: dict[str, Use] = attrs.field(factory=dict)
    """Checkers for reward hacks, each under a name of your choice."""
    forbid: tuple[str, ...] = attrs.field(default=(), metadata={"default": "from the other keys"})
    """Stated rules: every prompt prohibits them, and a candidate that breaks one is rejected, by its source before it
    is executed, or by the evaluation. Each must be a rule of a checker. Without this key: the rules that the recipe's
    checkers state by default; the saved recipe lists them."""
    verdicts: VerdictSettings = VerdictSettings()
    verify: VerifySettings = VerifySettings()
    feedback: Use = _declared("feedback")
    """Formatter of the feedback that the next prompt shows about a turn."""
    retriever: RetrieverUse | None = None
    """Source of examples similar to the task. Null: none."""
    demonstrations: DemonstrationSettings = DemonstrationSettings()
    train: TrainSettings = TrainSettings()
    curriculum: CurriculumSettings | None = None
    """Curriculum stages, and task selection by difficulty. Null: all tasks, in the order of `train.shuffle`."""
    eval: EvalSettings = EvalSettings()
    cost: CostSettings = CostSettings()
    loggers: dict[str, Use] = attrs.field(factory=dict)
    """Additional loggers, each under a name of your choice. JSONL files and the console are always written."""
    requires: tuple[str, ...] = ()
    """Distributions that the recipe needs, with versions, such as `kernelrl-plugin-hip>=0.1`."""
