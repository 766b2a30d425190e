"""Work before a run: load and check a recipe, plan a dry run, estimate the cost."""
