"""Everything before a run spends anything: load a recipe, check it, dry-run plan, cost estimate."""
