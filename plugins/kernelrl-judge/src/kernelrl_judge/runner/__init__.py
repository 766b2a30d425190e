"""The process of one candidate and the zygote that it is forked from. Nothing that it reports is trusted."""
