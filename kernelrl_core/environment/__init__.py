"""From a reply to a scored turn: extract, check, evaluate, conclude, score, feedback."""
