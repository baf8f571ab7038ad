"""`preroll cliff`: where a server stops keeping its promise, where it falls, where it recovers."""
