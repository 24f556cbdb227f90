"""Exporters: a report in the formats that other tools open.

Each is found through the entry points `perfc.exporters`, as those of other
distributions are, and loaded when its format is asked for.
"""
