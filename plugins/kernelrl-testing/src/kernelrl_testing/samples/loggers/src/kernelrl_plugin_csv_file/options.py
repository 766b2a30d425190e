"""Options of the logger `csv_file`."""

import attrs

from kernelrl_core.api.loggers import LoggerConfig


@attrs.frozen
class CsvFileConfig(LoggerConfig):
    """Options."""

    file: str = "reward.csv"
    """Name of the file in the run directory."""
