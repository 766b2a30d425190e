"""The process of one candidate, the zygote that it is forked from, and the nursery. Its reports are never trusted."""
