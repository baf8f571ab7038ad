"""Where state lives: weights, artifacts, prefixes."""
