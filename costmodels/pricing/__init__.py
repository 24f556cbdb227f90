"""Choice of the model that prices a kernel, with its bounds and interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.pricing.bound import (
        at_least_bound_of_one,
        lower_bound,
        lower_bound_of_one,
    )
    from perfc.costmodels.pricing.calibrated import as_calibrated, log_factors
    from perfc.costmodels.pricing.fitted_sessions import as_fitted
    from perfc.costmodels.pricing.intervals import interval_rows, interval_sizes
    from perfc.costmodels.pricing.measured import (
        MEASURED,
        measured_kernel,
        measured_signature,
    )
    from perfc.costmodels.pricing.models import cost_models, find_cost_models
    from perfc.costmodels.pricing.one_kernel import estimate_of, price_one, say_one
    from perfc.costmodels.pricing.select import price, price_table
    from perfc.costmodels.pricing.terms import terms_of
    from perfc.costmodels.pricing.timing import (
        COLLECTIVE_TIMINGS,
        KERNEL_TIMINGS,
        MEETING_OPS,
        MET,
        SESSION_OPS,
        SOFTWARE_OPS,
        TimedEstimate,
        as_timed,
        call_names,
        call_seconds,
        graph_gaps_s,
        hidden_kernels,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "bound": ("at_least_bound_of_one", "lower_bound", "lower_bound_of_one"),
            "calibrated": ("as_calibrated", "log_factors"),
            "fitted_sessions": ("as_fitted",),
            "intervals": ("interval_rows", "interval_sizes"),
            "measured": ("MEASURED", "measured_kernel", "measured_signature"),
            "models": ("cost_models", "find_cost_models"),
            "one_kernel": ("estimate_of", "price_one", "say_one"),
            "select": ("price", "price_table"),
            "terms": ("terms_of",),
            "timing": (
                "COLLECTIVE_TIMINGS",
                "KERNEL_TIMINGS",
                "MEETING_OPS",
                "MET",
                "SESSION_OPS",
                "SOFTWARE_OPS",
                "TimedEstimate",
                "as_timed",
                "call_names",
                "call_seconds",
                "graph_gaps_s",
                "hidden_kernels",
            ),
        },
    )

__all__ = [
    "COLLECTIVE_TIMINGS",
    "KERNEL_TIMINGS",
    "MEASURED",
    "MEETING_OPS",
    "MET",
    "SESSION_OPS",
    "SOFTWARE_OPS",
    "TimedEstimate",
    "as_calibrated",
    "as_fitted",
    "as_timed",
    "at_least_bound_of_one",
    "call_names",
    "call_seconds",
    "cost_models",
    "estimate_of",
    "find_cost_models",
    "graph_gaps_s",
    "hidden_kernels",
    "interval_rows",
    "interval_sizes",
    "log_factors",
    "lower_bound",
    "lower_bound_of_one",
    "measured_kernel",
    "measured_signature",
    "price",
    "price_one",
    "price_table",
    "say_one",
    "terms_of",
]
