"""Environments that are compiled together with the agent."""
