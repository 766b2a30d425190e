"""Source analysis that plugins share."""
