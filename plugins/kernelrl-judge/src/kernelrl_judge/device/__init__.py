"""Devices as the judge sees them: names, measured ceilings, idleness."""
