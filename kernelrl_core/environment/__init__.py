"""From a reply to a scored turn: extraction, checkers, evaluation, outcome and verdict, score, feedback."""
