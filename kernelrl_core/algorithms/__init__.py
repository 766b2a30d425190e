"""Returns, advantages, credit and per-token loss weights: pure functions on lists."""
