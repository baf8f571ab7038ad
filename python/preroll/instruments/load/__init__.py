"""`preroll load`: what to send, the run, what the numbers are worth."""
