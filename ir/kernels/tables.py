"""Kernels that look rows of embedding tables up, and that update them."""

from __future__ import annotations

from perfc.ir.kernels.definition import named
from perfc.ir.kernels.spelling import (
    COUNT,
    FLAG,
    NUMBER,
    RECORDS,
    WORD,
    kernel,
    kind,
    param,
)

TABLE_FIELDS = (
    param("rows", COUNT, "rows of the table", unit="rows"),
    param("dim", COUNT, "elements of a row", unit="elements"),
    param("pooling", NUMBER, "rows of a bag, on average", unit="rows"),
    param("popularity", WORD, "how often which rows are looked up", default=""),
    param("tier", WORD, "the memory it lies in; empty: the device's", default=""),
    param("cache", NUMBER, "share of its rows that are cached", default=0.0),
    param("sharding", WORD, "how it is split over ranks", default=""),
    param(
        "row_bytes",
        COUNT,
        "what a row takes that has scales in it; 0: as the type has it",
        unit="bytes",
        default=0,
    ),
    param("kept", NUMBER, "share of its bags that differ from the last", default=1.0),
    param("count", COUNT, "drives or modules of its tier", unit="drives", default=1),
    param("servers", COUNT, "servers that share it", unit="servers", default=1),
    param("server", WORD, "the target that each of them is", default=""),
    param("trainers", COUNT, "that ask them at once; 0: ranks", default=0),
    param("rpc_us", NUMBER, "what a request to them takes", unit="us", default=0.0),
    param("ahead", FLAG, "whether a step uses rows asked for before it", default=False),
)
"""What a kernel is told of each table."""

_RANKS = param(
    "ranks", COUNT, "ranks that ask for as much at once", unit="ranks", default=1
)
_STATES = param(
    "optimizer", WORD, "whose states lie beside the rows; empty: none", default=""
)

_LOOKUP = (
    param("batch", COUNT, "bags of a table", unit="bags"),
    param("tables", RECORDS, "the tables", unit="tables", fields=TABLE_FIELDS),
    param("mode", WORD, "how rows of a bag are pooled", default="sum"),
    param("weighted", FLAG, "whether rows are weighted", default=False),
    param("popularity", WORD, "of tables that say nothing of it", default=""),
    param("index_bytes", COUNT, "size of an index", unit="bytes", default=8),
    _RANKS,
)

KERNELS = named(
    kernel(
        "embedding_bag",
        "rows looked up and pooled; backward, their gradients, with an update or not",
        *_LOOKUP,
        param(
            "exponent",
            NUMBER,
            "exponent of popularity zipf, as some rows give it",
            default=0.0,
            by="rows",
        ),
        param("optimizer", WORD, "what updates the rows; empty: nothing", default=""),
        param("algorithm", WORD, "how gradients of rows are added up", default=""),
        by="eager rows",
    ),
    kernel(
        "row_cache_fill",
        "rows copied from the host into the cache of a table",
        *_LOOKUP,
        by="eager",
    ),
    kernel(
        "tier_read",
        "rows of a batch that a tier gives to the cache of a table",
        *_LOOKUP,
        _STATES,
        by="eager",
    ),
    kernel(
        "tier_write",
        "rows that leave the cache of a table, written to its tier",
        *_LOOKUP,
        _STATES,
        by="eager",
    ),
    kernel(
        "tier_fill",
        "rows between the host and the cache of a table",
        *_LOOKUP,
        _STATES,
        kind("from where to where: h2d or d2h", by="eager"),
        by="eager",
    ),
    kernel(
        "host_lookup",
        "rows looked up and pooled by the host's cores; backward, updated by them",
        *_LOOKUP,
        _STATES,
        by="eager",
    ),
    kernel(
        "server_lookup",
        "rows looked up and pooled by parameter servers; backward, updated by them",
        *_LOOKUP,
        _STATES,
        by="eager",
    ),
    kernel(
        "server_request",
        "a request to parameter servers, without its bytes",
        param("us", NUMBER, "what it takes", unit="us"),
        by="eager",
    ),
    kernel(
        "server_transfer",
        "indices, pooled rows or their gradients between ranks and servers",
        param("bytes", COUNT, "of one rank", unit="bytes"),
        param("servers", COUNT, "servers", unit="servers"),
        param("server", WORD, "the target that each of them is"),
        kind("from the rank's side: send or receive", by="eager"),
        _RANKS,
        by="eager",
    ),
    kernel(
        "pooled_copy",
        "pooled rows, or their gradients, between the host and a rank",
        param("bytes", COUNT, "of one rank", unit="bytes"),
        kind("from where to where: h2d or d2h", by="eager"),
        _RANKS,
        by="eager",
    ),
    kernel(
        "embedding_backward",
        "gradients of rows added up, by blocks of columns",
        param("rows", COUNT, "rows of the table", unit="rows"),
        param("dim", COUNT, "elements of a row", unit="elements"),
        param("lookups", COUNT, "rows that were looked up", unit="rows"),
        by="eager",
    ),
    kernel(
        "linearize_indices",
        "indices of several tables numbered through",
        param("bags", COUNT, "bags of all tables", unit="bags"),
        param("items", COUNT, "indices of all bags", unit="indices"),
        by="eager",
    ),
    kernel(
        "index_add",
        "rows added at indices, sorted before",
        kind("the op, as index_put"),
        param("indices", COUNT, "rows that are added", unit="rows"),
        param("outer", COUNT, "times that all of them are", unit="times", default=1),
        param("inner", COUNT, "elements of a row", unit="elements", default=1),
        by="eager",
    ),
)
"""Kernels that this module declares, by name."""
