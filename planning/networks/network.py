"""Networks of GPUs of several kinds, with links of different rates: their files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, cast

import attrs

from perfc.costmodels import Target, assumed_system, load_target
from perfc.ir import PerfcError
from perfc.ir.support import parse_toml, read_text

MAX_GPUS = 4096
"""GPUs of a network, at most."""

_BITS, _MEGA, _MILLI = 8, 1e6, 1e-3
_NODE = frozenset({"name", "target", "count"})
_RATES = frozenset({"mbit_per_s", "latency_ms"})
_LEAST = 1e-6
"""Mbit/s: a bit a second. Times of slower links are beyond what floats can add."""
_LINK = _RATES | {"a", "b"}
_FILE = frozenset({"nodes", "links", "default"})


@attrs.frozen
class Link:
    """One direction between two GPUs.

    Attributes:
        bytes_per_s: Rate.
        latency_s: What a message takes besides.

    """

    bytes_per_s: float
    latency_s: float = 0.0

    def seconds(self, sent_bytes: float) -> float:
        """Return the seconds of a message: `latency + bytes / rate`, 0 of no bytes."""
        if not sent_bytes:
            return 0.0
        return self.latency_s + sent_bytes / self.bytes_per_s

    def then(self, other: Link) -> Link:
        """Return this link and another behind it, as one."""
        rate = min(self.bytes_per_s, other.bytes_per_s)
        return Link(rate, self.latency_s + other.latency_s)


@attrs.frozen(eq=False)
class NetworkNode:
    """GPUs of one kind in one place.

    Attributes:
        name: As the file says.
        target: Each of them.
        count: How many.

    """

    name: str
    target: Target
    count: int = 1


@attrs.frozen(eq=False)
class Network:
    """Nodes and the ways between them.

    Attributes:
        nodes: In the file's order.
        links: One direction each, by names; both of one node for those inside it.
        default: Between nodes that no link joins; None if they are not joined.

    """

    nodes: Sequence[NetworkNode]
    links: Mapping[tuple[str, str], Link]
    default: Link | None = None

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return sum(node.count for node in self.nodes)

    def link(self, a: int, b: int) -> Link:
        """Return the way from a GPU of a node to one of another, or inside a node."""
        if a == b:
            return self.inside(self.nodes[a])
        return self._ways[a][b]

    def inside(self, node: NetworkNode) -> Link:
        """Return the link between GPUs of a node, by the file or by their sheet."""
        stated = self.links.get((node.name, node.name))
        if stated is not None:
            return stated
        return Link(node.target.once(assumed_system).link_bytes_per_s)

    @cached_property
    def _ways(self) -> list[list[Link]]:
        """Return the way between each two nodes: direct, or the widest over others."""
        count = len(self.nodes)
        none = Link(0.0, math.inf)
        ways = [
            [self._direct(a, b) or none for b in range(count)] for a in range(count)
        ]
        for over in range(count):
            for a in range(count):
                for b in range(count):
                    made = ways[a][over].then(ways[over][b])
                    if a != b and self._direct(a, b) is None:
                        ways[a][b] = max(ways[a][b], made, key=_goodness)
        return ways

    def _direct(self, a: int, b: int) -> Link | None:
        names = self.nodes[a].name, self.nodes[b].name
        return self.links.get(names, self.default)

    def check(self) -> None:
        """Refuse nodes that cannot reach each other."""
        for a, first in enumerate(self.nodes):
            for b, second in enumerate(self.nodes):
                if a != b and not self._ways[a][b].bytes_per_s:
                    msg = (
                        f"network is disconnected: no way leads from {first.name!r} to "
                        f"{second.name!r}; name a link, or give a [default]"
                    )
                    raise PerfcError(msg)


def _goodness(link: Link) -> tuple[float, float]:
    return link.bytes_per_s, -link.latency_s


def read_network(path: str) -> Network:
    """Read a network file.

    A TOML file with `[[nodes]]` (`name`, `target`, `count`, else 1), `[[links]]`
    (`a`, `b`, `mbit_per_s`, `latency_ms`, 0 if not given) and a `[default]` of the two
    rates for pairs that no link names. A link is for both directions, unless another
    names its ends the other way round. A link from a node to itself joins its GPUs;
    without one they have what their sheet says.
    """
    where = f"network file {path}"
    text = read_text(Path(path), PerfcError, "a network file")
    return _Reader(path).network(parse_toml(text, PerfcError, where))


@attrs.frozen
class _Reader:
    """Reads one file, whose name errors begin with."""

    path: str

    def network(self, found: Mapping[str, Any]) -> Network:
        self._keys("the file", found, _FILE)
        entries = self._tables(found, "nodes")
        if not entries:
            self._refuse("has no [[nodes]]")
        nodes = [self._node(number, entry) for number, entry in enumerate(entries)]
        names = [node.name for node in nodes]
        for name in names:
            if names.count(name) > 1:
                self._refuse(f"node {name!r} is named twice")
        default = found.get("default")
        network = Network(
            nodes,
            self._links(self._tables(found, "links"), names),
            None
            if default is None
            else self._default(self._table("[default]", default)),
        )
        if network.gpus > MAX_GPUS:
            self._refuse(f"{network.gpus:,} GPUs, expected at most {MAX_GPUS:,}")
        try:
            network.check()
        except PerfcError as error:
            self._refuse(str(error))
        return network

    def _tables(self, found: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
        given: object = found.get(name, [])
        if not isinstance(given, list):
            self._refuse(f"{name}: expected tables [[{name}]]")
        tables = cast("list[object]", given)
        return [self._table(f"[[{name}]]", each) for each in tables]

    def _table(self, where: str, found: object) -> dict[str, Any]:
        if not isinstance(found, dict):
            self._refuse(f"{where.strip('[]')}: expected a table {where}")
        return cast("dict[str, Any]", found)

    def _node(self, number: int, entry: dict[str, Any]) -> NetworkNode:
        where = f"node {entry.get('name', number)!r}"
        self._keys(where, entry, _NODE)
        name, target = entry.get("name"), entry.get("target")
        if not (isinstance(name, str) and name):
            self._refuse(f"{where}: expected a name")
        if not (isinstance(target, str) and target):
            self._refuse(f"{where} has no target; add target = NAME (perfc targets)")
        count = entry.get("count", 1)
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            self._refuse(f"{where}: count {count!r}, expected a number from 1 on")
        try:
            return NetworkNode(name, load_target(target), count)
        except PerfcError as error:
            self._refuse(f"{where}: {error}")

    def _links(
        self, entries: Sequence[dict[str, Any]], names: Sequence[str]
    ) -> dict[tuple[str, str], Link]:
        """Return both directions of all links."""
        said: dict[tuple[str, str], Link] = {}
        for entry in entries:
            ends = entry.get("a"), entry.get("b")
            where = f"link {ends[0]!r} to {ends[1]!r}"
            self._keys(where, entry, _LINK)
            for end in ends:
                if end not in names:
                    self._refuse(f"{where}: there is no node {end!r}")
            link = self._link(where, entry)
            before = said.setdefault((str(ends[0]), str(ends[1])), link)
            if before != link:
                same = before.bytes_per_s == link.bytes_per_s
                what = "latencies" if same else "rates"
                self._refuse(f"{where} is named twice, with different {what}")
        back = {(b, a): link for (a, b), link in said.items()}
        return {**back, **said}

    def _default(self, entry: Mapping[str, Any]) -> Link:
        self._keys("[default]", entry, _RATES)
        return self._link("[default]", entry)

    def _link(self, where: str, entry: Mapping[str, Any]) -> Link:
        if "mbit_per_s" not in entry:
            self._refuse(f"{where} has no mbit_per_s")
        rate = self._number(where, entry, "mbit_per_s")
        latency = self._number(where, entry, "latency_ms")
        if not rate > 0:
            self._refuse(f"{where}: mbit_per_s {rate:g}, expected more than 0")
        if rate < _LEAST:
            self._refuse(f"{where}: mbit_per_s {rate:g}, expected {_LEAST:g} or more")
        if latency < 0:
            self._refuse(f"{where}: latency_ms {latency:g}, expected 0 or more")
        return Link(rate * _MEGA / _BITS, latency * _MILLI)

    def _number(self, where: str, entry: Mapping[str, Any], key: str) -> float:
        found = entry.get(key, 0)
        if not isinstance(found, int | float) or isinstance(found, bool):
            self._refuse(f"{where}: {key} {found!r}, expected a number")
        return float(found)

    def _keys(
        self, where: str, entry: Mapping[str, Any], known: frozenset[str]
    ) -> None:
        for key in entry:
            if key not in known:
                expected = ", ".join(sorted(known))
                self._refuse(f"{where}: unknown key {key!r}; expected {expected}")

    def _refuse(self, problem: str) -> NoReturn:
        msg = f"network file {self.path}: {problem}"
        raise PerfcError(msg)
