"""What passes share about graphs: phases, streams, axes, a tape to write on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.passes.graphs.axis_letters import letters_of
    from perfc.passes.graphs.forward_graph import forward_graph_of
    from perfc.passes.graphs.gathered_parameters import gathers
    from perfc.passes.graphs.launch_copy import LaunchCopy
    from perfc.passes.graphs.launch_splice import (
        LaunchSplice,
        in_order_of_ops,
        tasks_of,
    )
    from perfc.passes.graphs.looked_up_tables import (
        change_tables,
        listed,
        placed_lookups,
        require_table,
        require_updated_in_place,
        table_lookups,
        table_names,
        tables_off_device,
    )
    from perfc.passes.graphs.optimizer_state import STATES, declare_state
    from perfc.passes.graphs.phases import (
        BACKWARD,
        FORWARD,
        OPTIMIZER,
        has_optimizer,
        is_training_step,
    )
    from perfc.passes.graphs.side_streams import (
        STAGES,
        cast_stream,
        communicates,
        gradient_stream,
        has_own_stream,
        is_between_stages,
        is_issued_in_order,
    )
    from perfc.passes.graphs.stated_host import stated_host_s
    from perfc.passes.graphs.tape import Tape, typed
    from perfc.passes.graphs.term import Call, Found, find_term, number_of, parse_term
else:
    __getattr__ = door(
        __name__,
        {
            "axis_letters": ("letters_of",),
            "forward_graph": ("forward_graph_of",),
            "gathered_parameters": ("gathers",),
            "launch_copy": ("LaunchCopy",),
            "launch_splice": ("LaunchSplice", "in_order_of_ops", "tasks_of"),
            "looked_up_tables": (
                "change_tables",
                "listed",
                "table_lookups",
                "placed_lookups",
                "require_table",
                "require_updated_in_place",
                "table_names",
                "tables_off_device",
            ),
            "optimizer_state": ("STATES", "declare_state"),
            "phases": (
                "BACKWARD",
                "FORWARD",
                "OPTIMIZER",
                "has_optimizer",
                "is_training_step",
            ),
            "side_streams": (
                "STAGES",
                "cast_stream",
                "communicates",
                "gradient_stream",
                "has_own_stream",
                "is_between_stages",
                "is_issued_in_order",
            ),
            "stated_host": ("stated_host_s",),
            "tape": ("Tape", "typed"),
            "term": ("Call", "Found", "find_term", "number_of", "parse_term"),
        },
    )

__all__ = [
    "BACKWARD",
    "FORWARD",
    "OPTIMIZER",
    "STAGES",
    "STATES",
    "Call",
    "Found",
    "LaunchCopy",
    "LaunchSplice",
    "Tape",
    "cast_stream",
    "change_tables",
    "communicates",
    "declare_state",
    "find_term",
    "forward_graph_of",
    "gathers",
    "gradient_stream",
    "has_optimizer",
    "has_own_stream",
    "in_order_of_ops",
    "is_between_stages",
    "is_issued_in_order",
    "is_training_step",
    "letters_of",
    "listed",
    "number_of",
    "parse_term",
    "placed_lookups",
    "require_table",
    "require_updated_in_place",
    "stated_host_s",
    "table_lookups",
    "table_names",
    "tables_off_device",
    "tasks_of",
    "typed",
]
