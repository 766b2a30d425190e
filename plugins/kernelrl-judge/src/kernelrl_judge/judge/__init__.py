"""The judge process: evaluates one candidate after the other. It never imports a candidate."""
