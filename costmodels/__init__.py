"""Descriptions of targets, and what a kernel costs on one."""

from __future__ import annotations

from perfc.costmodels.attention import ATTENTION, AttentionParameters, attention_seconds
from perfc.costmodels.attention_residual import (
    ATTENTION_RESIDUAL_FILE,
    attention_features,
    attention_sizes,
)
from perfc.costmodels.batch_norm import BATCH_NORM
from perfc.costmodels.bound import lower_bound
from perfc.costmodels.calibrated import log_factors
from perfc.costmodels.calibration import PROFILE_SCHEMA
from perfc.costmodels.catalog import is_path, system_names, target_names
from perfc.costmodels.collective import (
    COLLECTIVE,
    MAKERS_SYSTEMS,
    CollectiveModel,
    collective_links,
    collective_parameters,
    joins_nodes,
)
from perfc.costmodels.collective_rows import (
    CollectiveRows,
    collective_rows_of,
    left_out_one_by_one,
    weighed,
)
from perfc.costmodels.collective_share import (
    SUMS_BESIDE,
    CollectiveShares,
    collective_shares,
)
from perfc.costmodels.collective_sizes import Collectives
from perfc.costmodels.collective_terms import CollectiveParameters
from perfc.costmodels.collective_time import collective_seconds, node_rate
from perfc.costmodels.columns import ColumnTable, KernelColumns
from perfc.costmodels.conv import CONV, launches_winograd
from perfc.costmodels.conv_simt import ConvParameters
from perfc.costmodels.cpu import CPU
from perfc.costmodels.cpu_memory import IN_PLACE, NEW, NEW_BYTES, makes_no_result
from perfc.costmodels.cpu_rows import (
    SHIPPED_ROWS_FILE,
    shipped_rows,
    write_shipped_rows,
)
from perfc.costmodels.device_names import DEVICE_TARGETS, target_of_device
from perfc.costmodels.embedding_bag import EMBEDDING_BAG
from perfc.costmodels.embedding_tiers import (
    EMBEDDING_TIERS,
    ROW_CACHE_FILL,
    UVM,
    UVM_CACHING,
    device_bytes,
)
from perfc.costmodels.embedding_update import EMBEDDING_UPDATE
from perfc.costmodels.extrapolation import extrapolation_remark
from perfc.costmodels.family import Family, family_of
from perfc.costmodels.fitted_file import FITTED_FOLDER
from perfc.costmodels.gemm import GEMM, products_of
from perfc.costmodels.gemm_residual import (
    LONGER,
    REACH,
    RESIDUAL_FILE,
    Known,
    factors,
    features_of,
    has_network,
    ranged,
)
from perfc.costmodels.host_profile import (
    COMPILED_GRAPH,
    GRAPH_LAUNCH,
    GRAPH_NODE_US,
    HostProfile,
    HostProfileError,
    PerName,
    load_profile,
    parse_profile,
    profile_names,
    profile_problems,
)
from perfc.costmodels.inclusion import inclusion_shares
from perfc.costmodels.intervals import interval_rows, interval_sizes
from perfc.costmodels.kernel_fit import SCALE, START, KernelFit, KernelFits, fits_of
from perfc.costmodels.links import Links
from perfc.costmodels.lookups import distinct_rows
from perfc.costmodels.madmax import (
    MadMaxModel,
    MadMaxSystem,
    madmax_model,
    madmax_system,
)
from perfc.costmodels.measured import (
    MEASURED,
    MeasuredModel,
    measured_kernel,
    measured_signature,
)
from perfc.costmodels.measured_collectives import COLLECTIVES
from perfc.costmodels.measured_rows import MeasuredKernel, MeasuredKernels, Signature
from perfc.costmodels.memcpy import MEMCPY
from perfc.costmodels.models import cost_models, find_cost_models
from perfc.costmodels.multi_tensor import MULTI_TENSOR
from perfc.costmodels.near_rows import NEAR_ROWS, NO_WORD, NearRows, Place
from perfc.costmodels.network import Network, networks
from perfc.costmodels.nominal import as_known
from perfc.costmodels.popularity import (
    Distinct,
    FbgemmAlpha,
    Histogram,
    Popularity,
    PopularityError,
    PowerLaw,
    Uniform,
    ZipfMandelbrot,
    rank_bins,
)
from perfc.costmodels.popularity_file import POPULARITY_SCHEMA, read_popularity
from perfc.costmodels.popularity_text import is_popularity, parse_popularity
from perfc.costmodels.product_parameters import (
    SIMT_MODES,
    GemmParameters,
    simt_parameters,
    tensor_parameters,
)
from perfc.costmodels.products import Products, simt_seconds, tensor_seconds
from perfc.costmodels.protocol import (
    CostModel,
    Estimate,
    KernelTable,
    Provenance,
    uniform_estimate,
)
from perfc.costmodels.rank_bins import RankBins
from perfc.costmodels.reuse import (
    REUSE_EDGES,
    ReuseHistogram,
    published_histogram,
    reuse_histogram,
    rows_by_hits,
    share_noise,
)
from perfc.costmodels.roofline import ROOFLINE
from perfc.costmodels.row_cache import (
    BatchFill,
    LookAhead,
    batch_fill,
    cold_misses,
    fifo_miss_share,
    look_ahead,
    lru_miss_share,
    miss_curve,
    rows_for_hits,
    static_miss_share,
)
from perfc.costmodels.select import price, price_table
from perfc.costmodels.sheet import describe, load_target
from perfc.costmodels.sheet_fields import is_possible
from perfc.costmodels.streaming import IDLE, REPEATED, STREAMING, StreamingModel
from perfc.costmodels.system import System
from perfc.costmodels.system_sheet import assumed_system
from perfc.costmodels.target import (
    MATH_MODES,
    Device,
    Host,
    HostLink,
    Link,
    Memory,
    RuntimeConstants,
    Target,
    TargetError,
)
from perfc.costmodels.terms import Terms, terms_of
from perfc.costmodels.timing import (
    COLLECTIVE_TIMINGS,
    KERNEL_TIMINGS,
    MEETING_OPS,
    MET,
    SESSION_OPS,
    SOFTWARE,
    SOFTWARE_OPS,
    TimedEstimate,
    as_timed,
    call_names,
    call_seconds,
    graph_gaps_s,
    hidden_kernels,
)
from perfc.costmodels.unique_rows import RowCurve, row_curve, unique_row_count
from perfc.costmodels.walk import WALK
from perfc.costmodels.wave_scaling import (
    WAVE_SIGMA,
    blocks_per_sm,
    memory_boundedness,
    wave_ratio,
)

__all__ = [
    "ATTENTION",
    "ATTENTION_RESIDUAL_FILE",
    "BATCH_NORM",
    "COLLECTIVE",
    "COLLECTIVES",
    "COLLECTIVE_TIMINGS",
    "COMPILED_GRAPH",
    "CONV",
    "CPU",
    "DEVICE_TARGETS",
    "EMBEDDING_BAG",
    "EMBEDDING_TIERS",
    "EMBEDDING_UPDATE",
    "FITTED_FOLDER",
    "GEMM",
    "GRAPH_LAUNCH",
    "GRAPH_NODE_US",
    "IDLE",
    "IN_PLACE",
    "KERNEL_TIMINGS",
    "LONGER",
    "MAKERS_SYSTEMS",
    "MATH_MODES",
    "MEASURED",
    "MEETING_OPS",
    "MEMCPY",
    "MET",
    "MULTI_TENSOR",
    "NEAR_ROWS",
    "NEW",
    "NEW_BYTES",
    "NO_WORD",
    "POPULARITY_SCHEMA",
    "PROFILE_SCHEMA",
    "REACH",
    "REPEATED",
    "RESIDUAL_FILE",
    "REUSE_EDGES",
    "ROOFLINE",
    "ROW_CACHE_FILL",
    "SCALE",
    "SESSION_OPS",
    "SHIPPED_ROWS_FILE",
    "SIMT_MODES",
    "SOFTWARE",
    "SOFTWARE_OPS",
    "START",
    "STREAMING",
    "SUMS_BESIDE",
    "UVM",
    "UVM_CACHING",
    "WALK",
    "WAVE_SIGMA",
    "AttentionParameters",
    "BatchFill",
    "CollectiveModel",
    "CollectiveParameters",
    "CollectiveRows",
    "CollectiveShares",
    "Collectives",
    "ColumnTable",
    "ConvParameters",
    "CostModel",
    "Device",
    "Distinct",
    "Estimate",
    "Family",
    "FbgemmAlpha",
    "GemmParameters",
    "Histogram",
    "Host",
    "HostLink",
    "HostProfile",
    "HostProfileError",
    "KernelColumns",
    "KernelFit",
    "KernelFits",
    "KernelTable",
    "Known",
    "Link",
    "Links",
    "LookAhead",
    "MadMaxModel",
    "MadMaxSystem",
    "MeasuredKernel",
    "MeasuredKernels",
    "MeasuredModel",
    "Memory",
    "NearRows",
    "Network",
    "PerName",
    "Place",
    "Popularity",
    "PopularityError",
    "PowerLaw",
    "Products",
    "Provenance",
    "RankBins",
    "ReuseHistogram",
    "RowCurve",
    "RuntimeConstants",
    "Signature",
    "StreamingModel",
    "System",
    "Target",
    "TargetError",
    "Terms",
    "TimedEstimate",
    "Uniform",
    "ZipfMandelbrot",
    "as_known",
    "as_timed",
    "assumed_system",
    "attention_features",
    "attention_seconds",
    "attention_sizes",
    "batch_fill",
    "blocks_per_sm",
    "call_names",
    "call_seconds",
    "cold_misses",
    "collective_links",
    "collective_parameters",
    "collective_rows_of",
    "collective_seconds",
    "collective_shares",
    "cost_models",
    "describe",
    "device_bytes",
    "distinct_rows",
    "extrapolation_remark",
    "factors",
    "family_of",
    "features_of",
    "fifo_miss_share",
    "find_cost_models",
    "fits_of",
    "graph_gaps_s",
    "has_network",
    "hidden_kernels",
    "inclusion_shares",
    "interval_rows",
    "interval_sizes",
    "is_path",
    "is_popularity",
    "is_possible",
    "joins_nodes",
    "launches_winograd",
    "left_out_one_by_one",
    "load_profile",
    "load_target",
    "log_factors",
    "look_ahead",
    "lower_bound",
    "lru_miss_share",
    "madmax_model",
    "madmax_system",
    "makes_no_result",
    "measured_kernel",
    "measured_signature",
    "memory_boundedness",
    "miss_curve",
    "networks",
    "node_rate",
    "parse_popularity",
    "parse_profile",
    "price",
    "price_table",
    "products_of",
    "profile_names",
    "profile_problems",
    "published_histogram",
    "ranged",
    "rank_bins",
    "read_popularity",
    "reuse_histogram",
    "row_curve",
    "rows_by_hits",
    "rows_for_hits",
    "share_noise",
    "shipped_rows",
    "simt_parameters",
    "simt_seconds",
    "static_miss_share",
    "system_names",
    "target_names",
    "target_of_device",
    "tensor_parameters",
    "tensor_seconds",
    "terms_of",
    "uniform_estimate",
    "unique_row_count",
    "wave_ratio",
    "weighed",
    "write_shipped_rows",
]
