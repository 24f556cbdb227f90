"""One request: which model, in which setting, on which target.

`perfc.load`, `perfc.analyze`, `perfc.from_torch` and the verbs of the command line ask
by the same record. Each of its fields is declared once: the default, how a value given
in Python is read, and the option of the command line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, cast

import attrs

from perfc.ir.choices import ATTENTION_KERNELS, OPTIMIZERS
from perfc.ir.program import MAX_MICROBATCHES, MAX_RANKS
from perfc.ir.support import brief, path_text
from perfc.tools.given import (
    DTYPES,
    MAX_DIM,
    Read,
    check_options,
    choice_of,
    objects_with,
    pairs_of,
    read_anything,
    read_dtype,
    read_field,
    read_inputs,
    read_model,
    read_popularity,
    read_prune,
    read_target,
    read_texts,
    whole,
)
from perfc.tools.option import Option
from perfc.tools.sheet_options import SheetOptions, said_as_fields

if TYPE_CHECKING:
    from perfc.costmodels import Target
    from perfc.frontends import Optimizer
    from perfc.frontends.torch import CustomStep, Loss
    from perfc.ir import Diagnostic
    from perfc.passes import Pass
    from perfc.passes.instruments import Instrument

INFERENCE = "inference"
TRAINING = "training"
MODES = (INFERENCE, TRAINING)
"""What an iteration is: a forward pass, or a step of training."""

CAPTURED = "cudagraph"
RUNTIMES = ("eager", CAPTURED, "compiled")


class DimOptions(TypedDict, total=False):
    """Sizes that a model leaves open, but for the batch."""

    pooling: int | None
    dims: Mapping[str, int] | None


class SizeOptions(DimOptions, total=False):
    """Sizes that a model leaves open."""

    batch: int | None


class SettingOptions(SizeOptions, total=False):
    """How a model is brought in."""

    mode: str
    dtype: Any
    transforms: Sequence[Pass]
    instruments: Sequence[Instrument]


class LoadOptions(SettingOptions, total=False):
    """What `perfc.load` takes by name."""

    optimizer: str | None
    accumulate: int | None
    prune: float | None
    ranks: int | None
    popularity: str | Mapping[str, str]
    preset: str | os.PathLike[str] | None


class AnalyzeOptions(LoadOptions, SheetOptions, total=False):
    """What `perfc.analyze` takes by name."""

    runtime: str
    inputs: str
    attention: str
    overheads: str | os.PathLike[str] | None
    passes: Sequence[str]
    pipeline: str | None
    input_pipeline: str | os.PathLike[str] | None
    overrides: Mapping[str, Any] | None


class TorchOptions(SettingOptions, total=False):
    """What `perfc.from_torch` takes by name, apart from what it records."""

    optimizer: Optimizer
    loss: Loss
    step: CustomStep
    name: str | None


def _told(read: Read, option: Option | None = None) -> dict[str, Any]:
    return {"read": read, "option": option}


_EMPTY: Mapping[str, Any] = {}
_KEPT = ("dtype", "instruments", "preset")
"""What is asked of loading and of timing alike."""


@attrs.frozen(kw_only=True, eq=False)
class Request:
    """What is asked of perfc.

    Attributes:
        model: A loaded model, or what `perfc.load` takes.
        target: A target, its name, or the path of its sheet.
        batch: Samples in the batch; None for what the model says.
        dims: Other symbols, and their numbers.
        pooling: Lookups per embedding bag, where the model leaves it open.
        popularity: How lookups spread over rows, by table name; "" means all tables.
        mode: `inference` or `training`.
        optimizer: Of training: by name, of a recording also what makes one.
        accumulate: Microbatches of a step; None for one, or what passes say.
        prune: Share of the channels of its convolutions to take away; None for none.
        ranks: GPUs that run replicas of it.
        dtype: What the model computes in: one of `DTYPES`.
        runtime: One of `RUNTIMES`.
        inputs: Where inputs come from: `host-pinned` (asynchronous copies),
            `host-pinned-blocking` (the host waits for each), `host-pageable` (it waits,
            and the copy is slower) or `device`; then some by name: `,past_*=device`.
        attention: Which kernels attention runs by: one of `ATTENTION_KERNELS`.
        overheads: Host profile, by name or file; None for the target's.
        passes: Extra passes, as `name{option=value}`.
        pipeline: The passes that time the model, or all, those that load it too.
        input_pipeline: File of the stages that bring batches; None for none.
        overrides: Fields of the target's sheet, and their values.
        preset: Name or path of what says the rest; once that is done, its name.
        given: Fields that somebody gave, which win against the preset.
        remarks: What there is to say about the request itself.
        transforms: Passes that change the graph, in Python's own objects.
        instruments: Observers of the passes.
        args: What a module to record is called with.
        kwargs: The same by name.
        loss: Of a recorded step.
        step: Whole iteration of a recorded step.
        name: What a recording is called.

    """

    __repr__ = brief

    model: Any = attrs.field(default=None, metadata=_told(read_model))
    target: Target | str = attrs.field(
        default="",
        metadata=_told(
            read_target,
            Option(
                flag="--target",
                metavar="NAME|FILE.toml",
                help="Device to predict for; repeat for several.",
                required=True,
                multiple=True,
            ),
        ),
    )
    batch: int | None = attrs.field(
        default=None,
        metadata=_told(
            whole(MAX_DIM),
            Option(
                flag="--batch", metavar="N", help="Samples in the batch.", most=MAX_DIM
            ),
        ),
    )
    dims: Mapping[str, int] = attrs.field(
        default=_EMPTY,
        metadata=_told(
            pairs_of(whole(MAX_DIM, 0), "{'sequence': 128}"),
            Option(
                flag="--dim",
                metavar="NAME=N",
                help="Bind another dimension.",
                multiple=True,
            ),
        ),
    )
    pooling: int | None = attrs.field(
        default=None,
        metadata=_told(
            whole(MAX_DIM),
            Option(
                flag="--pooling",
                metavar="N",
                help="Lookups per embedding bag, where the model leaves it open.",
                most=MAX_DIM,
            ),
        ),
    )
    popularity: Mapping[str, str] = attrs.field(
        default=_EMPTY,
        metadata=_told(
            read_popularity,
            Option(
                flag="--popularity",
                metavar="TEXT|FILE|NAME=TEXT",
                help="How lookups spread over the rows of tables, or of the table "
                "NAME: uniform, zipf(1.05), zipf-mandelbrot(0.98,1400), ..., or what "
                "`perfc locality` writes.",
                multiple=True,
            ),
        ),
    )
    mode: str = attrs.field(
        default=INFERENCE,
        metadata=_told(
            choice_of(MODES),
            Option(
                flag="--mode",
                choices=MODES,
                default=INFERENCE,
                help="training: forward, loss, backward and optimizer.",
            ),
        ),
    )
    optimizer: Any = attrs.field(
        default=None,
        metadata=_told(
            read_anything,
            Option(
                flag="--optimizer",
                choices=OPTIMIZERS,
                help="Of --mode training; sgd if not given.",
            ),
        ),
    )
    accumulate: int | None = attrs.field(
        default=None,
        metadata=_told(
            whole(MAX_MICROBATCHES),
            Option(
                flag="--accumulate",
                metavar="N",
                help="Microbatches of a training step, equal parts of the batch, whose "
                "gradients are added up before the optimizer steps.",
                most=MAX_MICROBATCHES,
            ),
        ),
    )
    prune: float | None = attrs.field(
        default=None,
        metadata=_told(
            read_prune,
            Option(
                flag="--prune",
                metavar="SHARE",
                help="Take away this share of the channels of each convolution.",
            ),
        ),
    )
    ranks: int | None = attrs.field(
        default=None,
        metadata=_told(
            whole(MAX_RANKS),
            Option(
                flag="--ranks",
                metavar="N",
                help="GPUs, each with a replica and a batch of its own.",
                most=MAX_RANKS,
            ),
        ),
    )
    dtype: str = attrs.field(
        default="fp32",
        metadata=_told(
            read_dtype,
            Option(
                flag="--dtype",
                choices=DTYPES,
                default="fp32",
                help="What the model computes in: fp32 with cuDNN in TF32, PyTorch's "
                "default (--pass lower-kernels{cudnn-tf32=false}: without); tf32 in "
                "fp32 GEMMs, too; bf16 and fp16 throughout, amp-… by autocast; fp8, "
                "mxfp8, int8, w8a16 and w4a16 in linear layers, 16 bits elsewhere.",
            ),
        ),
    )
    runtime: str = attrs.field(
        default="eager",
        metadata=_told(
            choice_of(RUNTIMES),
            Option(
                flag="--runtime",
                choices=RUNTIMES,
                default="eager",
                help="cudagraph: the iteration captured, and replayed as one CUDA "
                "graph; compiled: kernels fused as torch.compile does.",
            ),
        ),
    )
    inputs: str = attrs.field(
        default="host-pinned",
        metadata=_told(
            read_inputs,
            Option(
                flag="--inputs",
                metavar="PLACE[,NAME=PLACE...]",
                default="host-pinned",
                help="Where inputs are when the iteration starts: host-pinned, "
                "host-pinned-blocking (the host waits for each copy), host-pageable, "
                "device; and some by name, as host-pinned,past_*=device.",
            ),
        ),
    )
    attention: str = attrs.field(
        default=ATTENTION_KERNELS[0],
        metadata=_told(
            choice_of(ATTENTION_KERNELS),
            Option(
                flag="--attention",
                choices=ATTENTION_KERNELS,
                default=ATTENTION_KERNELS[0],
                help="Which kernels attention runs by; auto for PyTorch's own choice.",
            ),
        ),
    )
    overheads: str | None = attrs.field(
        default=None,
        metadata=_told(
            path_text,
            Option(
                flag="--overheads",
                metavar="NAME|FILE.toml",
                help="Host profile; the target's if not given.",
            ),
        ),
    )
    passes: tuple[str, ...] = attrs.field(
        default=(),
        metadata=_told(
            read_texts,
            Option(
                flag="--pass",
                metavar="NAME{k=v}",
                help="Add a pass, or give one of the pipeline other options.",
                multiple=True,
            ),
        ),
    )
    pipeline: str | None = attrs.field(
        default=None,
        metadata=_told(
            path_text,
            Option(flag="--pipeline", metavar="STRING", help="Run just these passes."),
        ),
    )
    input_pipeline: str | None = attrs.field(
        default=None,
        metadata=_told(
            path_text,
            Option(
                flag="--input-pipeline",
                metavar="FILE",
                help="Stages that bring batches to the device, serial or overlapped, "
                "as TOML or JSON: what a step waits for them becomes part of it.",
            ),
        ),
    )
    overrides: Mapping[str, str] = attrs.field(
        default=_EMPTY,
        metadata=_told(
            pairs_of(read_field, "{'gpu.sm_clock_mhz': 1200}"),
            Option(
                flag="--set",
                metavar="FIELD=VALUE",
                help="Override a field of the target, as gpu.sm_clock_mhz=1200.",
                multiple=True,
            ),
        ),
    )
    preset: str | None = attrs.field(
        default=None,
        metadata=_told(
            path_text,
            Option(
                flag="--preset",
                metavar="NAME|FILE.toml",
                help="Target, fields of it, host, inputs and options of passes under "
                "one name (`perfc targets --presets`); what is given besides wins.",
            ),
        ),
    )
    given: frozenset[str] = attrs.field(
        default=frozenset(), metadata=_told(read_anything)
    )
    remarks: tuple[Diagnostic, ...] = attrs.field(
        default=(), metadata=_told(read_anything)
    )
    transforms: tuple[Pass, ...] = attrs.field(
        default=(),
        metadata=_told(
            objects_with("run", "passes, as transforms=[BatchEmbeddings()]")
        ),
    )
    instruments: tuple[Instrument, ...] = attrs.field(
        default=(),
        metadata=_told(objects_with("before", "observers, as instruments=[Timing()]")),
    )
    args: Any = attrs.field(default=(), metadata=_told(read_anything))
    kwargs: Mapping[str, Any] | None = attrs.field(
        default=None, metadata=_told(read_anything)
    )
    loss: Any = attrs.field(default=None, metadata=_told(read_anything))
    step: Any = attrs.field(default=None, metadata=_told(read_anything))
    name: str | None = attrs.field(default=None, metadata=_told(path_text))

    @classmethod
    def of(
        cls,
        call: str,
        known: type,
        options: Mapping[str, Any],
        **named: Any,  # noqa: ANN401 - whatever was given
    ) -> Request:
        """Read what a call in Python was given; None stands for the default.

        Args:
            call: The call, as errors name it.
            known: The options that it takes: a `TypedDict`.
            options: The options that it was given.
            named: What else it was given, by fields of a request.

        """
        check_options(call, options, known)
        fields, given = attrs.fields_dict(cls), {**named, **options}
        read = {
            name: fields[name].metadata["read"](name, value)
            for name, value in given.items()
            if name in fields and (value is not None or name in named)
        }
        read |= said_as_fields(read, given)
        return cls(**read, given=frozenset(read))

    def of_loaded(
        self,
        model: Any,  # noqa: ANN401 - a `Model`
        passes: Sequence[str],
        pipeline: str | None,
    ) -> Request:
        """Return the request that is left once the model is loaded.

        Args:
            model: The loaded model.
            passes: Those of the extra passes that do not change it.
            pipeline: The part of the pipeline that does not.

        """
        fields = attrs.fields_dict(type(self))
        done = {name: fields[name].default for name in LoadOptions.__optional_keys__}
        kept = {name: getattr(self, name) for name in _KEPT}
        left = {"model": model, "passes": tuple(passes), "pipeline": pipeline}
        return attrs.evolve(self, **{**done, **kept, **left})

    def words(self, *names: str) -> Iterator[str]:
        """Yield the words of a command that say what is no default, of some fields."""
        for name in names:
            value, option = getattr(self, name), OPTIONS[name]
            if isinstance(value, Mapping):
                pairs = cast("Mapping[str, object]", value).items()
                values = [f"{key}={one}" for key, one in pairs]
            elif option.multiple and isinstance(value, tuple):
                values = [str(one) for one in cast("tuple[object, ...]", value)]
            else:
                default = value == attrs.fields_dict(type(self))[name].default
                values = [] if default else [str(value)]
            for text in values:
                yield from (option.flag, text)


OPTIONS: Mapping[str, Option] = {
    field.name: field.metadata["option"]
    for field in attrs.fields(Request)
    if field.metadata["option"] is not None
}
"""The option of the command line for each field that has one."""
