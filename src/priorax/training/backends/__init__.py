"""Backends, which run agent and environment: one compiled scan, lanes on the host, or processes on Ray."""
