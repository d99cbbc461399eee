"""Where agent and environment run: one compiled scan, lanes on the host, or processes on Ray."""
