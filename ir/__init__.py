"""The intermediate representation: the only layer that everything imports."""

from __future__ import annotations

from perfc.ir.annotations import Anchor, AnnotationKey, Annotations, AnyKey, Scenario
from perfc.ir.budgets import (
    BUDGETS,
    BudgetError,
    budget,
    parse_budgets,
    raise_budgets,
    raised_budgets,
    spend,
)
from perfc.ir.collector import paused_collector
from perfc.ir.communicator_verifier import verify_communicators
from perfc.ir.copying import bind_record, bound_copy
from perfc.ir.core import BUFFER, CONST, PARAM, Graph, Node, Replacement, Use, Value
from perfc.ir.diagnostics import Diagnostic, Level
from perfc.ir.dim_parser import parse_dim
from perfc.ir.dims import (
    Dim,
    Expr,
    ceil_div,
    evaluate,
    floor_div,
    maximum,
    product,
    symbol,
    symbols_of,
    total,
)
from perfc.ir.errors import (
    ParseError,
    PassContractError,
    PerfcError,
    PipelineError,
    UnboundSymbolError,
    UnknownOpError,
    UnsupportedModelError,
    UsageError,
    VerifyError,
)
from perfc.ir.files import write_file
from perfc.ir.input_files import (
    damage_as,
    parse_json,
    parse_toml,
    read_text,
    read_unpacked,
    read_whole,
    reason_of,
)
from perfc.ir.launch import (
    BUSY_KINDS,
    HOST_KINDS,
    NO_WORK,
    Kernel,
    LaunchGraph,
    LaunchOp,
    Resource,
    ResourceKind,
    TaskKind,
    Work,
    verify_launches,
)
from perfc.ir.launch_printer import print_launches, print_program
from perfc.ir.location import ACCUMULATE_GRAD, NOWHERE, Location
from perfc.ir.opdef import Abstract, OpDef, OpRegistry, Ratio
from perfc.ir.ops import BUILTIN_OPS
from perfc.ir.ops.activation import ACTIVATIONS
from perfc.ir.ops.activation_backward import ACTIVATION_GRADIENTS
from perfc.ir.ops.attention import full_mask
from perfc.ir.ops.collective import COLLECTIVES, COMM_STREAM, communicator_ranks
from perfc.ir.ops.einsum import einsum_labels, einsum_pairs, einsum_sizes
from perfc.ir.ops.elementwise import ELEMENTWISE_OPS
from perfc.ir.ops.embedding import bags
from perfc.ir.ops.embedding_backward import inputs_of_backward
from perfc.ir.ops.loss import LOSSES_OF_ROWS
from perfc.ir.ops.optimizer import (
    FOREACH_FLOPS,
    OPTIMIZER_FLOPS,
    OPTIMIZER_STATES,
    state_types,
)
from perfc.ir.ops.recurrent import (
    RECURRENT_FLOPS,
    RECURRENT_GATES,
    RECURRENT_STATES,
    recurrent_sizes,
    reserved_vectors,
)
from perfc.ir.ops.reduction import reduced_axes
from perfc.ir.ops.rules import UNKNOWN_DIM, normalize_axis
from perfc.ir.ops.wire import WIRE_BLOCK, WIRE_FORMATS, block_bytes, encoded
from perfc.ir.parser import parse_graph, parse_program, parse_type
from perfc.ir.plugins import (
    COST_MODELS,
    EXPORTERS,
    FRONTENDS,
    PASSES,
    TARGETS,
    entry_points,
    is_built_in,
    is_somebody_elses,
    load_plugin,
    plugin_at_work,
    plugin_names,
    register_plugin,
)
from perfc.ir.printer import print_graph
from perfc.ir.program import Program, RankClass, single
from perfc.ir.quoting import printable
from perfc.ir.record import (
    EMPTY,
    AttrValue,
    Record,
    format_attribute,
    format_items,
)
from perfc.ir.record_json import json_of, record_of
from perfc.ir.type_verifier import verify_types
from perfc.ir.types import (
    DTYPES,
    DType,
    Granularity,
    MathMode,
    MemorySpace,
    Scaling,
    TensorType,
    parse_dtype,
)
from perfc.ir.verifier import verify

__all__ = [
    "ACCUMULATE_GRAD",
    "ACTIVATIONS",
    "ACTIVATION_GRADIENTS",
    "BUDGETS",
    "BUFFER",
    "BUILTIN_OPS",
    "BUSY_KINDS",
    "COLLECTIVES",
    "COMM_STREAM",
    "CONST",
    "COST_MODELS",
    "DTYPES",
    "ELEMENTWISE_OPS",
    "EMPTY",
    "EXPORTERS",
    "FOREACH_FLOPS",
    "FRONTENDS",
    "HOST_KINDS",
    "LOSSES_OF_ROWS",
    "NOWHERE",
    "NO_WORK",
    "OPTIMIZER_FLOPS",
    "OPTIMIZER_STATES",
    "PARAM",
    "PASSES",
    "RECURRENT_FLOPS",
    "RECURRENT_GATES",
    "RECURRENT_STATES",
    "TARGETS",
    "UNKNOWN_DIM",
    "WIRE_BLOCK",
    "WIRE_FORMATS",
    "Abstract",
    "Anchor",
    "AnnotationKey",
    "Annotations",
    "AnyKey",
    "AttrValue",
    "BudgetError",
    "DType",
    "Diagnostic",
    "Dim",
    "Expr",
    "Granularity",
    "Graph",
    "Kernel",
    "LaunchGraph",
    "LaunchOp",
    "Level",
    "Location",
    "MathMode",
    "MemorySpace",
    "Node",
    "OpDef",
    "OpRegistry",
    "ParseError",
    "PassContractError",
    "PerfcError",
    "PipelineError",
    "Program",
    "RankClass",
    "Ratio",
    "Record",
    "Replacement",
    "Resource",
    "ResourceKind",
    "Scaling",
    "Scenario",
    "TaskKind",
    "TensorType",
    "UnboundSymbolError",
    "UnknownOpError",
    "UnsupportedModelError",
    "UsageError",
    "Use",
    "Value",
    "VerifyError",
    "Work",
    "bags",
    "bind_record",
    "block_bytes",
    "bound_copy",
    "budget",
    "ceil_div",
    "communicator_ranks",
    "damage_as",
    "einsum_labels",
    "einsum_pairs",
    "einsum_sizes",
    "encoded",
    "entry_points",
    "evaluate",
    "floor_div",
    "format_attribute",
    "format_items",
    "full_mask",
    "inputs_of_backward",
    "is_built_in",
    "is_somebody_elses",
    "json_of",
    "load_plugin",
    "maximum",
    "normalize_axis",
    "parse_budgets",
    "parse_dim",
    "parse_dtype",
    "parse_graph",
    "parse_json",
    "parse_program",
    "parse_toml",
    "parse_type",
    "paused_collector",
    "plugin_at_work",
    "plugin_names",
    "print_graph",
    "print_launches",
    "print_program",
    "printable",
    "product",
    "raise_budgets",
    "raised_budgets",
    "read_text",
    "read_unpacked",
    "read_whole",
    "reason_of",
    "record_of",
    "recurrent_sizes",
    "reduced_axes",
    "register_plugin",
    "reserved_vectors",
    "single",
    "spend",
    "state_types",
    "symbol",
    "symbols_of",
    "total",
    "verify",
    "verify_communicators",
    "verify_launches",
    "verify_types",
    "write_file",
]
