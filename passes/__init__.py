"""Analyses and transforms of a program, and what runs them."""

from __future__ import annotations

from perfc.passes.base import Pass, PassContext, Transform
from perfc.passes.batch_embeddings import BatchEmbeddings, can_batch
from perfc.passes.capture_graph import CaptureGraph
from perfc.passes.checkpoint_activations import CheckpointActivations
from perfc.passes.codec import FULL_PRECISION, PRECISIONS, Codec
from perfc.passes.columns import integers
from perfc.passes.contention import solve_contended
from perfc.passes.convert_dtype import LOW_DTYPES, ConvertDtype
from perfc.passes.critical_path import CriticalPath
from perfc.passes.data_parallel import MAX_RANKS, DataParallel
from perfc.passes.eager import MEMSET, dtype_name
from perfc.passes.eager_collective import WORK_WAIT
from perfc.passes.facts import (
    CRITICAL_PATH,
    ELEMENTS,
    HOSTED,
    INTERVAL,
    KERNEL_COST,
    LAUNCHES,
    SCHEDULE,
    SEGMENT_KINDS,
    TYPED,
    HostedLaunches,
    Interval,
    Path,
    Schedule,
    Segment,
    SegmentKind,
)
from perfc.passes.faster_host import FasterHost
from perfc.passes.fold_shapes import FoldShapes
from perfc.passes.forward_graph import forward_graph_of
from perfc.passes.fsdp import Fsdp
from perfc.passes.fuse_kernels import FuseKernels
from perfc.passes.fused_kernel import fused_nodes
from perfc.passes.host_waits import waits_for_inputs, waits_inside
from perfc.passes.instruments import DumpDir, Instrument, Reproducer, Timing, VerifyEach
from perfc.passes.kernel_cost import KernelCost
from perfc.passes.lower_kernels import LowerKernels
from perfc.passes.manager import Analysis, PassManager, find_fact
from perfc.passes.memory import Memory
from perfc.passes.memory_use import LASTING, MEMORY, Buffer, BufferKind, MemoryUse
from perfc.passes.overhead import Overhead, host_launches
from perfc.passes.phases import has_optimizer, is_training_step
from perfc.passes.pin_copies import PinCopies
from perfc.passes.pipeline_parallel import PipelineParallel
from perfc.passes.pipeline_spec import (
    PassRequest,
    format_pipeline,
    make_pass,
    parse_pipeline,
    pass_class,
    pass_names,
    read_pipeline,
)
from perfc.passes.place_embeddings import PlaceEmbeddings
from perfc.passes.print_facts import print_analysis
from perfc.passes.raise_activation import RaiseActivation
from perfc.passes.raise_attention import RaiseAttention
from perfc.passes.raise_embedding_bag import RaiseEmbeddingBag
from perfc.passes.raise_gradient import RaiseGradient
from perfc.passes.raise_index import RaiseIndex
from perfc.passes.raise_linear import RaiseLinear
from perfc.passes.raise_norm import RaiseNorm
from perfc.passes.raise_rotary import RaiseRotary
from perfc.passes.regather import Regather
from perfc.passes.remove_syncs import RemoveSyncs
from perfc.passes.resolve_control_flow import ResolveControlFlow, has_control_flow
from perfc.passes.retiming import arrivals
from perfc.passes.set_popularity import SetPopularity
from perfc.passes.shape_inference import ShapeInference
from perfc.passes.shard_embeddings import ShardEmbeddings
from perfc.passes.sharded_tables import Bags, EmbeddingTable
from perfc.passes.sharding_plan import (
    COLUMN_WISE,
    COLUMNS,
    DATA_PARALLEL,
    GRID,
    NAMED_PLANS,
    ROW_WISE,
    SHARDING_TYPES,
    TABLE_ROW_WISE,
    TABLE_WISE,
    Placement,
    Plan,
    TableSize,
    World,
    check_parts,
    find_plan,
    read_plan,
    usual_kernel,
)
from perfc.passes.straggler import Straggler
from perfc.passes.stream_schedule import StreamSchedule
from perfc.passes.table_tiers import HBM, KERNELS, TIERS, USUAL_CACHE, in_tier, is_share
from perfc.passes.task_kinds import detail_mask, kernel_numbers, task_mask
from perfc.passes.tensor_parallel import TensorParallel
from perfc.passes.time_interval import TimeInterval, interval_of, shared_effects
from perfc.passes.timeline import (
    TIMELINE,
    TimeConstants,
    Timeline,
    arrival,
    link_graphs,
    solve,
)
from perfc.passes.training import Training
from perfc.passes.training_optimizer import OPTIMIZERS
from perfc.passes.what_if import (
    WHAT_IF,
    HostSaving,
    OpSaving,
    Savings,
    SiteSaving,
    WhatIf,
)

__all__ = [
    "COLUMNS",
    "COLUMN_WISE",
    "CRITICAL_PATH",
    "DATA_PARALLEL",
    "ELEMENTS",
    "FULL_PRECISION",
    "GRID",
    "HBM",
    "HOSTED",
    "INTERVAL",
    "KERNELS",
    "KERNEL_COST",
    "LASTING",
    "LAUNCHES",
    "LOW_DTYPES",
    "MAX_RANKS",
    "MEMORY",
    "MEMSET",
    "NAMED_PLANS",
    "OPTIMIZERS",
    "PRECISIONS",
    "ROW_WISE",
    "SCHEDULE",
    "SEGMENT_KINDS",
    "SHARDING_TYPES",
    "TABLE_ROW_WISE",
    "TABLE_WISE",
    "TIERS",
    "TIMELINE",
    "TYPED",
    "USUAL_CACHE",
    "WHAT_IF",
    "WORK_WAIT",
    "Analysis",
    "Bags",
    "BatchEmbeddings",
    "Buffer",
    "BufferKind",
    "CaptureGraph",
    "CheckpointActivations",
    "Codec",
    "ConvertDtype",
    "CriticalPath",
    "DataParallel",
    "DumpDir",
    "EmbeddingTable",
    "FasterHost",
    "FoldShapes",
    "Fsdp",
    "FuseKernels",
    "HostSaving",
    "HostedLaunches",
    "Instrument",
    "Interval",
    "KernelCost",
    "LowerKernels",
    "Memory",
    "MemoryUse",
    "OpSaving",
    "Overhead",
    "Pass",
    "PassContext",
    "PassManager",
    "PassRequest",
    "Path",
    "PinCopies",
    "PipelineParallel",
    "PlaceEmbeddings",
    "Placement",
    "Plan",
    "RaiseActivation",
    "RaiseAttention",
    "RaiseEmbeddingBag",
    "RaiseGradient",
    "RaiseIndex",
    "RaiseLinear",
    "RaiseNorm",
    "RaiseRotary",
    "Regather",
    "RemoveSyncs",
    "Reproducer",
    "ResolveControlFlow",
    "Savings",
    "Schedule",
    "Segment",
    "SegmentKind",
    "SetPopularity",
    "ShapeInference",
    "ShardEmbeddings",
    "SiteSaving",
    "Straggler",
    "StreamSchedule",
    "TableSize",
    "TensorParallel",
    "TimeConstants",
    "TimeInterval",
    "Timeline",
    "Timing",
    "Training",
    "Transform",
    "VerifyEach",
    "WhatIf",
    "World",
    "arrival",
    "arrivals",
    "can_batch",
    "check_parts",
    "detail_mask",
    "dtype_name",
    "find_fact",
    "find_plan",
    "format_pipeline",
    "forward_graph_of",
    "fused_nodes",
    "has_control_flow",
    "has_optimizer",
    "host_launches",
    "in_tier",
    "integers",
    "interval_of",
    "is_share",
    "is_training_step",
    "kernel_numbers",
    "link_graphs",
    "make_pass",
    "parse_pipeline",
    "pass_class",
    "pass_names",
    "print_analysis",
    "read_pipeline",
    "read_plan",
    "shared_effects",
    "solve",
    "solve_contended",
    "task_mask",
    "usual_kernel",
    "waits_for_inputs",
    "waits_inside",
]
