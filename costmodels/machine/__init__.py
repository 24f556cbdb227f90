"""What the cost models know of a machine, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfc.door import door

if TYPE_CHECKING:
    from perfc.costmodels.machine.family import (
        BACKWARD,
        FORWARD,
        SERIES_KINDS,
        Family,
        family_of,
        is_down,
    )
    from perfc.costmodels.machine.gemm_sizes import sizes_of_gemm
    from perfc.costmodels.machine.host_resources import HostResources, NodePower
    from perfc.costmodels.machine.kernel_fit import (
        NEAR_ROWS,
        SAME_KERNELS,
        SCALE,
        START,
        KernelFit,
        KernelFits,
        fits_of,
    )
    from perfc.costmodels.machine.measured_collectives import (
        COLLECTIVES,
        RING,
        MeasuredCollective,
    )
    from perfc.costmodels.machine.measured_rows import (
        ANOTHER_DAY,
        MeasuredKernel,
        MeasuredKernels,
        Signature,
        signature_of,
    )
    from perfc.costmodels.machine.near_rows import (
        MOST,
        NO_WORD,
        NearRows,
        Place,
    )
    from perfc.costmodels.machine.power import Power
    from perfc.costmodels.machine.system import (
        CUBE_MESH,
        FABRICS,
        MESH,
        NVSWITCH,
        PCIE,
        TOPOLOGIES,
        System,
    )
    from perfc.costmodels.machine.target import (
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
    from perfc.costmodels.machine.tier import Tier
    from perfc.costmodels.machine.wave_scaling import (
        WAVE_SIGMA,
        HasMultiprocessors,
        Multiprocessors,
        blocks_left,
        blocks_per_sm,
        memory_boundedness,
        wave_ratio,
    )
else:
    __getattr__ = door(
        __name__,
        {
            "family": (
                "BACKWARD",
                "FORWARD",
                "Family",
                "SERIES_KINDS",
                "family_of",
                "is_down",
            ),
            "gemm_sizes": ("sizes_of_gemm",),
            "kernel_fit": (
                "SAME_KERNELS",
                "KernelFit",
                "KernelFits",
                "NEAR_ROWS",
                "SCALE",
                "START",
                "fits_of",
            ),
            "host_resources": ("HostResources", "NodePower"),
            "measured_collectives": ("COLLECTIVES", "MeasuredCollective", "RING"),
            "measured_rows": (
                "ANOTHER_DAY",
                "MeasuredKernel",
                "MeasuredKernels",
                "Signature",
                "signature_of",
            ),
            "near_rows": ("MOST", "NO_WORD", "NearRows", "Place"),
            "power": ("Power",),
            "system": (
                "CUBE_MESH",
                "FABRICS",
                "MESH",
                "NVSWITCH",
                "PCIE",
                "System",
                "TOPOLOGIES",
            ),
            "target": (
                "Device",
                "Host",
                "HostLink",
                "Link",
                "MATH_MODES",
                "Memory",
                "RuntimeConstants",
                "Target",
                "TargetError",
            ),
            "tier": ("Tier",),
            "wave_scaling": (
                "HasMultiprocessors",
                "Multiprocessors",
                "WAVE_SIGMA",
                "blocks_left",
                "blocks_per_sm",
                "memory_boundedness",
                "wave_ratio",
            ),
        },
    )

__all__ = [
    "ANOTHER_DAY",
    "BACKWARD",
    "COLLECTIVES",
    "CUBE_MESH",
    "FABRICS",
    "FORWARD",
    "MATH_MODES",
    "MESH",
    "MOST",
    "NEAR_ROWS",
    "NO_WORD",
    "NVSWITCH",
    "PCIE",
    "RING",
    "SAME_KERNELS",
    "SCALE",
    "SERIES_KINDS",
    "START",
    "TOPOLOGIES",
    "WAVE_SIGMA",
    "Device",
    "Family",
    "HasMultiprocessors",
    "Host",
    "HostLink",
    "HostResources",
    "KernelFit",
    "KernelFits",
    "Link",
    "MeasuredCollective",
    "MeasuredKernel",
    "MeasuredKernels",
    "Memory",
    "Multiprocessors",
    "NearRows",
    "NodePower",
    "Place",
    "Power",
    "RuntimeConstants",
    "Signature",
    "System",
    "Target",
    "TargetError",
    "Tier",
    "blocks_left",
    "blocks_per_sm",
    "family_of",
    "fits_of",
    "is_down",
    "memory_boundedness",
    "signature_of",
    "sizes_of_gemm",
    "wave_ratio",
]
