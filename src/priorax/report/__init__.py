"""Figures and HTML pages from rows and run folders. Nothing here trains."""
