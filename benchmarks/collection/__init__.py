"""Measuring a machine within a time: the plan, the parts of a run, what comes back.

`benchmarks/collect.py` is the command. This package is run from a plain copy of the
repository, where nothing is installed.
"""
