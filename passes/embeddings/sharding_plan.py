"""Plans: which ranks hold which embedding tables, and which parts of them.

A plan file is JSON, with the names that TorchRec's plans use:

    {"tables": {"emb_l.0": {"sharding_type": "table_wise", "ranks": [3]}, ...}}

`ranks` are, by `sharding_type`:

- `table_wise`: the rank that holds the table;
- `column_wise`: the rank of each part of as many columns, none of them twice;
- `table_row_wise`: any rank of the node whose ranks share the rows;
- `grid_shard`: of each part of the columns any rank of the node that holds it;
- `row_wise`, `data_parallel`: all ranks, and may be left out.

TorchRec's own plans are read too: `{MODULE: {TABLE: {...}}}`, with all ranks of a node
where one is enough here; `sharding_spec` is not looked at.

`compute_kernel` says where rows lie, as in TorchRec's plans: `fused` in device memory,
`fused_uvm` in host memory, `fused_uvm_caching` there with a cache on the device, of
`{"cache_params": {"load_factor": 0.2}}` of the rows; `dense` is of `data_parallel`. If
it is `fused`, or left out, tables stay in the tier that `place-embeddings` has said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

import attrs

from perfc.costmodels import UVM_CACHING
from perfc.ir import PerfcError, UsageError, parse_json, spend
from perfc.ir.support import read_text
from perfc.passes.embeddings import sharding_types
from perfc.passes.embeddings.table_tiers import HBM, KERNELS, USUAL_CACHE, is_share

NAMED_PLANS: Mapping[str, str] = {
    "table-wise": sharding_types.TABLE_WISE,
    "column-wise": sharding_types.COLUMN_WISE,
    "row-wise": sharding_types.ROW_WISE,
    "table-row-wise": sharding_types.TABLE_ROW_WISE,
    "grid": sharding_types.GRID,
    "data-parallel": sharding_types.DATA_PARALLEL,
}
"""Plans that shard all tables alike, as pipelines spell them."""

ON_NODES = frozenset((sharding_types.TABLE_ROW_WISE, sharding_types.GRID))
"""Types that share rows inside a node."""

_DENSE = "dense"

_BY_COLUMNS = frozenset((sharding_types.COLUMN_WISE, sharding_types.GRID))
_EVERYWHERE = frozenset((sharding_types.ROW_WISE, sharding_types.DATA_PARALLEL))


def usual_kernel(kind: str) -> str:
    """Return the compute kernel of a sharding type, as TorchRec spells it."""
    return _DENSE if kind == sharding_types.DATA_PARALLEL else KERNELS[HBM]


COLUMNS = 4
"""A part has a multiple of so many columns: fbgemm reads rows four floats at a time."""

LEAST_COLUMNS = 32
"""Named plans leave so many columns to a part, or do not cut: `MIN_CW_DIM` of the first
planner of TorchRec. Now that is 128, by which most tables are not cut at all unless
`min_partition` says less."""


@attrs.frozen
class World:
    """The ranks that tables are sharded over.

    Attributes:
        ranks: How many.
        per_node: How many of them a node has: these are neighbours.

    """

    ranks: int
    per_node: int

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return self.ranks // self.per_node


@attrs.frozen
class TableSize:
    """What a plan has to know of a table.

    Attributes:
        name: What plans call it: its parameter, without `.weight`.
        dim: Columns.
        load: What a lookup moves, in any unit: columns x rows of a bag.

    """

    name: str
    dim: int
    load: float


@attrs.frozen
class Placement:
    """Placement of one table.

    Attributes:
        kind: One of `SHARDING_TYPES`.
        places: Of each part of its columns the rank, or the node; empty for all ranks.
        compute_kernel: What looks it up, as TorchRec spells it, `fused_uvm_caching`
            say; if empty, the kernel that is usual for the kind.
        cache: Share of the rows that `fused_uvm_caching` holds in device memory.

    """

    kind: str
    places: tuple[int, ...] = ()
    compute_kernel: str = ""
    cache: float = USUAL_CACHE

    @property
    def tier(self) -> str:
        """Tier that its rows lie in, one of `TIERS`; empty where it does not say it."""
        tiers = {kernel: tier for tier, kernel in KERNELS.items()}
        return tiers.get(self.compute_kernel, "")


Plan = Mapping[str, Placement]
"""Placement of each table, by name."""


def check_parts(tables: int, ranks: int) -> None:
    """Refuse more tables and ranks than can be sharded soon."""
    spend("parts", tables * ranks, f"{tables:,} tables on {ranks:,} ranks")


def find_plan(text: str, tables: Sequence[TableSize], world: World) -> Plan:
    """Return the plan that *text* names: of `NAMED_PLANS`, a JSON file, or its text.

    Behind a named plan may stand tables that are sharded otherwise, as
    `table-wise;emb_l.0=row-wise`.
    """
    check_parts(len(tables), world.ranks)
    if text.partition(";")[0] in NAMED_PLANS:
        # Shard tables, the heaviest first, each to where least is yet.
        kinds = _kinds(text, tables)
        loads = {count: [0.0] * count for count in (world.nodes, world.ranks)}
        found: dict[str, Placement] = {}
        for table in sorted(tables, key=lambda t: -t.load):
            kind = kinds[table.name]
            if kind in _EVERYWHERE:
                found[table.name] = Placement(kind)
                continue
            load = loads[world.nodes if kind in ON_NODES else world.ranks]
            parts = _parts(table.dim, len(load)) if kind in _BY_COLUMNS else 1
            least = sorted(range(len(load)), key=load.__getitem__)[:parts]
            for place in least:
                load[place] += table.load / parts
            found[table.name] = Placement(kind, tuple(sorted(least)))
        return found
    if text.lstrip().startswith("{"):
        return read_plan(text, tables, world, "plan")
    path = Path(text)
    if "\0" in text or not path.is_file():
        known = ", ".join(NAMED_PLANS)
        msg = f"plan {text!r} is neither a file nor one of {known}"
        raise UsageError(msg)
    content = read_text(path, PerfcError, "a plan in JSON")
    return read_plan(content, tables, world, f"plan {path}")


def read_plan(text: str, tables: Sequence[TableSize], world: World, name: str) -> Plan:
    """Return the plan that a document says: perfc's, its best answer, or TorchRec's.

    Args:
        text: JSON.
        tables: What it has to place.
        world: The ranks.
        name: What errors begin with.

    """
    return _PlanFile(name, text, world).read(tables)


def _kinds(text: str, tables: Sequence[TableSize]) -> dict[str, str]:
    """Return how each table is sharded."""
    base, *others = text.split(";")
    kinds = {table.name: NAMED_PLANS[base] for table in tables}
    for item in others:
        name, _, plan = item.rpartition("=")
        name = name.removesuffix(".weight")
        if name not in kinds or plan not in NAMED_PLANS:
            what, known = (
                (f"table {name!r}", kinds)
                if name not in kinds
                else (f"plan {plan!r}", NAMED_PLANS)
            )
            msg = f"{item!r} of plan {text!r}: no {what}; known: {', '.join(known)}"
            raise UsageError(msg)
        kinds[name] = NAMED_PLANS[plan]
    return kinds


def _parts(dim: int, most: int) -> int:
    """Return into how many equal parts columns go, by `COLUMNS` and `LEAST_COLUMNS`."""
    fitting = (
        n
        for n in range(min(most, dim // LEAST_COLUMNS), 0, -1)
        if dim % n == 0 and dim // n % COLUMNS == 0
    )
    return next(fitting, 1)


@attrs.frozen
class _PlanFile:
    """A plan that is read from a document, and what its errors begin with."""

    name: str
    text: str
    world: World

    def read(self, tables: Sequence[TableSize]) -> Plan:
        """Return where each table goes."""
        names = [table.name for table in tables]
        listed = self._tables(names)
        if unknown := sorted(listed.keys() - set(names)):
            msg = f"the model has no table {unknown[0]!r}; it has {_some(names)}"
            self._refuse(msg)
        if missing := [name for name in names if name not in listed]:
            self._refuse(f"nothing is said of the tables {_some(missing)}")
        return {t.name: self._placement(t, listed[t.name]) for t in tables}

    def _tables(self, names: Sequence[str]) -> Mapping[str, object]:
        """Return the entry of each table, from any of the formats."""
        text = self.text
        document = _fields(parse_json(text, PerfcError, self.name, "a JSON file"))
        if document.get("schema") == "perfc.shard/1":
            # What `perfc shard --format json` wrote: its first plan is the best one.
            plans = document.get("plans")
            ranked = cast("list[object]", plans) if isinstance(plans, list) else []
            document = _fields(_fields(next(iter(ranked), None)).get("plan"))
        modules = _fields(document.get("plan")) or document
        if not modules or not all(isinstance(v, dict) for v in modules.values()):
            msg = 'expected {"tables": {NAME: {"sharding_type": TYPE, "ranks": [...]}}}'
            self._refuse(msg)
        found: dict[str, object] = {}
        of_model = frozenset(names)
        for module, tables in modules.items():
            for name, entry in _fields(tables).items():
                # The model's name of a table: with its module or without.
                parts = module.split(".")
                longer = (".".join((*parts[n:], name)) for n in range(len(parts)))
                within = f"{module}.embedding_bags.{name}"
                known = next(
                    (n for n in (name, within, *longer) if n in of_model), name
                )
                if known in found:
                    self._refuse(f"table {known!r} is said twice")
                found[known] = entry
        return found

    def _placement(self, table: TableSize, entry: object) -> Placement:
        fields = _fields(entry)
        kind = fields.get("sharding_type")
        if kind not in sharding_types.SHARDING_TYPES:
            known = ", ".join(sharding_types.SHARDING_TYPES)
            self._refuse(f"sharding_type {kind!r} is none of {known}", table)
        kernel = self._kernel(table, kind, fields.get("compute_kernel"))
        cache = USUAL_CACHE
        if kernel == KERNELS[UVM_CACHING]:
            cache = self._cache(table, fields.get("cache_params"))
        places = self._places(table, kind, fields.get("ranks"))
        return Placement(kind, places, kernel, cache)

    def _places(self, table: TableSize, kind: str, found: object) -> tuple[int, ...]:
        """Return the rank, or the node, of each part; none for all ranks."""
        if kind in _EVERYWHERE:
            self._check_everywhere(table, found)
            return ()
        ranks = self._ranks(table, found)
        places = self._nodes(ranks) if kind in ON_NODES else ranks
        if kind not in _BY_COLUMNS and len(places) > 1:
            node = (
                f", or all {self.world.per_node} of a node" if kind in ON_NODES else ""
            )
            self._refuse(f"{kind} wants one rank{node}, got {list(ranks)}", table)
        if len(set(places)) < len(places):
            self._refuse(f"ranks {list(ranks)} hold two parts of it", table)
        if table.dim % len(places):
            msg = f"{table.dim} columns do not go evenly into {len(places)} parts"
            self._refuse(msg, table)
        return places

    def _kernel(self, table: TableSize, kind: str, found: object) -> str:
        """Return the kernel that looks a table up; nothing where it is the usual."""
        usual = usual_kernel(kind)
        known = (
            (usual,)
            if kind == sharding_types.DATA_PARALLEL
            else tuple(KERNELS.values())
        )
        if found is None or found in ("", usual):
            return ""
        if found not in known:
            expected = " or ".join(known)
            msg = f"compute_kernel {found!r} of {kind}, expected {expected}"
            self._refuse(msg, table)
        return str(found)

    def _cache(self, table: TableSize, found: object) -> float:
        """Return the share of the rows that a cache holds."""
        share = _fields(found).get("load_factor")
        if share is None:
            return USUAL_CACHE
        number = isinstance(share, int | float) and not isinstance(share, bool)
        if not number or not is_share(share):
            msg = f"load_factor {share!r}, expected more than 0, up to 1"
            self._refuse(msg, table)
        return float(share)

    def _nodes(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """Return the node of each part; TorchRec lists all ranks of each."""
        per_node = self.world.per_node
        nodes = tuple(rank // per_node for rank in ranks)
        whole = [
            node * per_node + n for node in nodes[::per_node] for n in range(per_node)
        ]
        return nodes[::per_node] if list(ranks) == whole else nodes

    def _ranks(self, table: TableSize, found: object) -> tuple[int, ...]:
        items = cast("list[object]", found) if isinstance(found, list) else []
        ranks = tuple(r for r in items if isinstance(r, int) and r is not True)
        if not ranks or len(ranks) < len(items):
            self._refuse(f"ranks {found!r} are no list of numbers", table)
        unknown = [rank for rank in ranks if not 0 <= rank < self.world.ranks]
        if unknown:
            msg = f"rank {unknown[0]} is not among 0 to {self.world.ranks - 1}"
            self._refuse(msg, table)
        return ranks

    def _check_everywhere(self, table: TableSize, found: object) -> None:
        if found is None:
            return
        ranks = self._ranks(table, found)
        if sorted(ranks) != list(range(self.world.ranks)):
            msg = f"ranks {list(ranks)}, expected all {self.world.ranks}, or none said"
            self._refuse(msg, table)

    def _refuse(self, problem: str, table: TableSize | None = None) -> NoReturn:
        """Raise a `PerfcError` that names the file and the table."""
        where = f"table {table.name!r}: " if table is not None else ""
        msg = f"{self.name}: {where}{problem}"
        raise PerfcError(msg)


def _fields(found: object) -> Mapping[str, Any]:
    """Return the fields of a JSON object; of anything else none."""
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


_SHOWN = 6


def _some(names: Sequence[str]) -> str:
    more = f", … ({len(names)} in all)" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
