"""How ranks share embedding tables, as TorchRec calls it."""

from __future__ import annotations

TABLE_WISE = "table_wise"
"""A table is on one rank."""

COLUMN_WISE = "column_wise"
"""Ranks hold parts of a table's columns."""

ROW_WISE = "row_wise"
"""All ranks hold parts of a table's rows."""

TABLE_ROW_WISE = "table_row_wise"
"""The ranks of a node hold parts of a table's rows."""

GRID = "grid_shard"
"""Nodes hold parts of a table's columns, and their ranks parts of the rows of these."""

DATA_PARALLEL = "data_parallel"
"""All ranks hold all of a table."""

SHARDING_TYPES = (
    TABLE_WISE,
    COLUMN_WISE,
    ROW_WISE,
    TABLE_ROW_WISE,
    GRID,
    DATA_PARALLEL,
)
"""Sharding types, as plan files spell them."""
