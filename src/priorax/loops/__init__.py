"""`live` (algorithm 3): agents meet environments."""
