"""Compiled environments, written in JAX."""
