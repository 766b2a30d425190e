"""Contract and values of the advantage `median_sign`."""

from kernelrl_plugin_median_sign.advantage import make
from kernelrl_plugin_median_sign.options import MedianSignConfig
from kernelrl_testing.contracts import AdvantageContract


class TestContract(AdvantageContract):
    component = "median_sign"


def test_returns_above_and_below_the_median_differ_in_sign() -> None:
    assert make(MedianSignConfig())([[1.0, 3.0], [0.0], [1.0]]) == [[0.0, 1.0], [-1.0], [0.0]]
