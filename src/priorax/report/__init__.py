"""Pictures and pages from rows. Nothing here trains."""
