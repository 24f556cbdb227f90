"""How often the same rows are looked up, and what caches make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.locality.inclusion_probabilities import inclusion_shares
    from perfc.costmodels.locality.look_ahead_tables import (
        CachedTable,
        LookAheadRows,
        lru_window,
        window_that_fits,
    )
    from perfc.costmodels.locality.lookups import (
        Each,
        Lookups,
        distinct_rows,
        has_tables,
        listed_tables,
        lookups_of,
        lookups_of_one,
        popularity_of,
        row_bytes_of,
        touched_rows,
    )
    from perfc.costmodels.locality.popularity import (
        Distinct,
        FbgemmAlpha,
        Histogram,
        Popularity,
        PopularityError,
        PowerLaw,
        Uniform,
        ZipfMandelbrot,
    )
    from perfc.costmodels.locality.popularity_file import (
        POPULARITY_SCHEMA,
        read_popularity,
    )
    from perfc.costmodels.locality.popularity_text import (
        is_popularity,
        parse_popularity,
    )
    from perfc.costmodels.locality.reuse import (
        REUSE_EDGES,
        ReuseHistogram,
        published_histogram,
        reuse_histogram,
        share_noise,
    )
    from perfc.costmodels.locality.row_cache import (
        batch_fill,
        cold_misses,
        fifo_miss_share,
        look_ahead,
        lru_miss_share,
        miss_curve,
        rows_for_hits,
        static_miss_share,
    )
    from perfc.costmodels.locality.sessions import as_quotient, kept_share
    from perfc.costmodels.locality.unique_rows import (
        RowCurve,
        row_curve,
        unique_row_count,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "inclusion_probabilities": ("inclusion_shares",),
            "lookups": (
                "Each",
                "Lookups",
                "distinct_rows",
                "has_tables",
                "listed_tables",
                "lookups_of",
                "lookups_of_one",
                "popularity_of",
                "row_bytes_of",
                "touched_rows",
            ),
            "look_ahead_tables": (
                "CachedTable",
                "LookAheadRows",
                "lru_window",
                "window_that_fits",
            ),
            "popularity": (
                "Distinct",
                "FbgemmAlpha",
                "Histogram",
                "Popularity",
                "PopularityError",
                "PowerLaw",
                "Uniform",
                "ZipfMandelbrot",
            ),
            "popularity_file": ("POPULARITY_SCHEMA", "read_popularity"),
            "popularity_text": ("is_popularity", "parse_popularity"),
            "reuse": (
                "REUSE_EDGES",
                "ReuseHistogram",
                "published_histogram",
                "reuse_histogram",
                "share_noise",
            ),
            "row_cache": (
                "batch_fill",
                "cold_misses",
                "fifo_miss_share",
                "look_ahead",
                "lru_miss_share",
                "miss_curve",
                "rows_for_hits",
                "static_miss_share",
            ),
            "sessions": ("as_quotient", "kept_share"),
            "unique_rows": ("RowCurve", "row_curve", "unique_row_count"),
        },
    )

__all__ = [
    "POPULARITY_SCHEMA",
    "REUSE_EDGES",
    "CachedTable",
    "Distinct",
    "Each",
    "FbgemmAlpha",
    "Histogram",
    "LookAheadRows",
    "Lookups",
    "Popularity",
    "PopularityError",
    "PowerLaw",
    "ReuseHistogram",
    "RowCurve",
    "Uniform",
    "ZipfMandelbrot",
    "as_quotient",
    "batch_fill",
    "cold_misses",
    "distinct_rows",
    "fifo_miss_share",
    "has_tables",
    "inclusion_shares",
    "is_popularity",
    "kept_share",
    "listed_tables",
    "look_ahead",
    "lookups_of",
    "lookups_of_one",
    "lru_miss_share",
    "lru_window",
    "miss_curve",
    "parse_popularity",
    "popularity_of",
    "published_histogram",
    "read_popularity",
    "reuse_histogram",
    "row_bytes_of",
    "row_curve",
    "rows_for_hits",
    "share_noise",
    "static_miss_share",
    "touched_rows",
    "unique_row_count",
    "window_that_fits",
]
