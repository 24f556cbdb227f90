"""Fits of the parameters, networks and intervals that perfc ships.

Only maintainers run them, by `make fit` and the scripts beside this package: they are
no part of what is installed. What `perfc calibrate` fits is `perfc.fitting`.
"""
