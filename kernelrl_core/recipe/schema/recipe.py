"""A recipe as a whole."""

from __future__ import annotations

import attrs

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


@attrs.frozen
class Recipe:
    """One training run."""

    tasks: Use
    """Where tasks come from."""
    backend: Use
    """Language the kernels are written in."""
    policy: Use
    """The model that is trained."""
    rewards: dict[str, RewardUse]
    """Reward components by a name of their own; the reward is the weighted sum."""
    seed: NonNegativeInt = NonNegativeInt(0)
    """Seed of everything random in the run, apart from the hidden inputs of the judge."""
    evaluator: Use = Use("local")
    """Where candidates are judged."""
    evaluation: EvaluationSettings = EvaluationSettings()
    """How candidates are judged."""
    prompt: PromptSettings = PromptSettings()
    sampling: SamplingOptions = SamplingOptions()
    episode: EpisodeSettings = EpisodeSettings()
    history: HistorySettings = HistorySettings()
    returns: ReturnSettings = ReturnSettings()
    advantage: Use = Use("grpo")
    """Advantage estimator."""
    checkers: dict[str, Use] = attrs.field(factory=dict)
    """Hack-checkers by a name of their own."""
    forbid: tuple[str, ...] = ("no_kernel", "library_compute")
    """Rules of the checkers whose breach rejects a candidate before it runs. Every prompt states them."""
    verdicts: VerdictSettings = VerdictSettings()
    verify: VerifySettings = VerifySettings()
    feedback: Use = Use("structured")
    """What the next turn is told."""
    retriever: RetrieverUse | None = None
    """Finder of worked examples; null: none."""
    demonstrations: DemonstrationSettings = DemonstrationSettings()
    train: TrainSettings = TrainSettings()
    curriculum: CurriculumSettings | None = None
    """Stages, and draws by difficulty; null: all tasks in turn."""
    eval: EvalSettings = EvalSettings()
    cost: CostSettings = CostSettings()
    loggers: dict[str, Use] = attrs.field(factory=dict)
    """Observers by a name of their own; JSONL files and the console are always there."""
    requires: tuple[str, ...] = ()
    """Plugin distributions the recipe needs, with versions, such as `kernelrl-plugin-hip>=0.1`."""
