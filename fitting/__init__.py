"""From measured rows to a profile: what the fits of perfc share."""
