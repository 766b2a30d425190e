"""Conversion of a configuration of kernel-rl or kernelbench-tinker to a recipe: keys, reading, mapping, writing."""

from kernelrl_adapters.conversion.convert import Conversion, convert
from kernelrl_adapters.conversion.reading import SYSTEMS, Configuration, read_configuration
from kernelrl_adapters.conversion.writing import recipe_text

__all__ = ["SYSTEMS", "Configuration", "Conversion", "convert", "read_configuration", "recipe_text"]
