"""Probe `addresses`: results cached by the address or the object of an input."""

from __future__ import annotations

import attrs

from kernelrl_judge.probes.probe import DirectCall, Probe
from kernelrl_judge.protocol.call import Call

__all__ = ["AddressesProbe"]


class AddressesProbe(Probe):
    """Every second call has new values at the addresses of the previous call; the others have new addresses."""

    name = "addresses"

    def order(self, order: Call, call: DirectCall) -> Call:
        return attrs.evolve(order, keeps_arguments=call.fits, reuses_arguments=call.number % 2 == 0)
