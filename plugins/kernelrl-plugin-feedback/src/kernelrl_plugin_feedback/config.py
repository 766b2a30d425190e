"""Options of the formatters."""

from __future__ import annotations

import attrs

from kernelrl_core.api.config import PositiveInt
from kernelrl_core.api.feedback import FeedbackConfig

__all__ = ["ProfileConfig", "RawConfig", "StructuredConfig"]


@attrs.frozen
class StructuredConfig(FeedbackConfig):
    """Options of `structured`."""

    max_characters: PositiveInt = attrs.field(
        default=PositiveInt(1200), validator=attrs.validators.ge(PositiveInt(300))
    )
    """Maximum length. Error text is shortened first; its beginning and its end are kept."""


@attrs.frozen
class ProfileConfig(FeedbackConfig):
    """Options of `profile`."""

    max_characters: PositiveInt = attrs.field(
        default=PositiveInt(1200), validator=attrs.validators.ge(PositiveInt(300))
    )
    """Maximum length. The least important facts are dropped first."""


@attrs.frozen
class RawConfig(FeedbackConfig):
    """Options of `raw`."""

    max_characters: PositiveInt = attrs.field(
        default=PositiveInt(8000), validator=attrs.validators.ge(PositiveInt(300))
    )
    """Maximum length. Of a longer message the beginning and the end are kept."""
