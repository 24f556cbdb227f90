"""What `make accuracy` scores, and how its table is made.

Scripts of maintainers, not installed.
"""
