"""Training: agents meet environments (`live`, algorithm 3), and everything that is kept of it."""
