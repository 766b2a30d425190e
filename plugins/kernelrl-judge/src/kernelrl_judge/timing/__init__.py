"""Run times of candidate and baseline, and the limits of the device."""
