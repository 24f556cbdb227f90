"""Parts that the fits of perfc share, from measured rows to a profile."""
