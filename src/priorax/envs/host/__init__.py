"""Environments on the host, many at once."""
