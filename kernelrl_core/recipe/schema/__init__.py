"""Every key of a recipe, with its type, default and meaning.

The text below a field is its help in `kernelrl schema` and in editors. A block that selects a component has the type
`Use`; its other keys are the options of that component.
"""

from __future__ import annotations

from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.schema.attempts import (
    BestHistory,
    EpisodeSettings,
    Extension,
    Hardware,
    HistorySettings,
    LastHistory,
    PromptSettings,
    SamplingOptions,
    SpeedupStop,
)
from kernelrl_core.recipe.schema.costs import CostSettings, PriceSettings
from kernelrl_core.recipe.schema.curricula import Advance, CurriculumSettings, CurriculumStage, Difficulty
from kernelrl_core.recipe.schema.judgements import EvalSettings, SearchSettings, VerdictSettings, VerifySettings
from kernelrl_core.recipe.schema.learning import (
    CoverageRejection,
    DemonstrationSettings,
    ReturnSettings,
    TrainSettings,
)
from kernelrl_core.recipe.schema.recipe import Recipe
from kernelrl_core.recipe.schema.uses import RetrieverUse, RewardUse
from kernelrl_core.types.numbers import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from kernelrl_core.types.training import MismatchSettings

__all__ = [
    "Advance",
    "BestHistory",
    "CostSettings",
    "CoverageRejection",
    "CurriculumSettings",
    "CurriculumStage",
    "DemonstrationSettings",
    "Difficulty",
    "EpisodeSettings",
    "EvalSettings",
    "Extension",
    "Fraction",
    "Hardware",
    "HistorySettings",
    "LastHistory",
    "MismatchSettings",
    "NonNegativeFloat",
    "NonNegativeInt",
    "PositiveFloat",
    "PositiveInt",
    "PriceSettings",
    "PromptSettings",
    "Recipe",
    "RetrieverUse",
    "ReturnSettings",
    "RewardUse",
    "SamplingOptions",
    "SearchSettings",
    "SpeedupStop",
    "TrainSettings",
    "Use",
    "VerdictSettings",
    "VerifySettings",
]
