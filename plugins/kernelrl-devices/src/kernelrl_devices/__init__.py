"""Devices of this machine: leases for timed and other work, the GPUs that the driver lists, data sheets of GPUs.

A library below the core. It imports no driver and no framework.
"""
