"""The loop: rollout, credit, update, evaluate, commit."""
