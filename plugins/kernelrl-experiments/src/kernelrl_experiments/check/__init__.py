"""`kernelrl check`: kernels against a task, or a suite of kernels against their tasks, and again when files change."""
