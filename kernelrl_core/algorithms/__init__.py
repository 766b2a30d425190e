"""Returns, advantages, credit and loss shaping: pure functions on lists."""
