"""Sharding plans as a page with pictures of what each rank has to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from perfc.planning.plans import size_text
from perfc.tools.reports import format_us
from perfc.tools.sharding.report import (
    Sharding,
    kinds_of,
    name_of,
    on_host,
    reason,
    shown_ranks,
)
from perfc.tools.sharding.search import RankedPlan

US = 1e6
_STYLE = """
:root { color-scheme: light dark; --lookup: #4878a8; --update: #d98b3a;
  --memory: #6a9f58; --dim: #888; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 70em;
  padding: 0 1em; }
h1 { font-size: 1.25em; } h2 { font-size: 1.05em; margin-top: 2em; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .15em 1.2em .15em 0; text-align: left; }
svg { width: 100%; height: auto; } svg text { fill: currentColor; font-size: 11px; }
.lookup { fill: var(--lookup); } .update { fill: var(--update); }
.memory { fill: var(--memory); } .limit { stroke: var(--dim); stroke-dasharray: 4 3; }
"""
_WIDTH, _LEFT, _ROW, _HEIGHT = 900, 90, 20, 14
_HALF, _BESIDE = 320, 440
_SHOWN = 3
"""Plans with a picture: the best ones."""


def shard_page(found: Sharding) -> str:
    """Return the page; it loads nothing from anywhere."""
    title = escape(f"perfc shard: {name_of(found)}")
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>",
        *_ranking(found),
    ]
    pictured = [one for one in found.ranked if one.loads is not None][:_SHOWN]
    longest_s = max((_longest(one) for one in pictured), default=0.0)
    for one in pictured:
        parts += _plan(one, max(longest_s, 1e-12))
    return "\n".join([*parts, "</body></html>\n"])


def _longest(one: RankedPlan) -> float:
    return float((one.seconds("lookup_s") + one.seconds("update_s")).max())


def _ranking(found: Sharding) -> Iterator[str]:
    world, asked = found.model.world, found.model.request
    yield f"<p>{world.ranks} ranks of {escape(found.model.target.name)}, "
    yield f"{found.model.samples:,} samples on each, {escape(asked.mode)}</p>"
    yield "<table><tr><th>plan<th>step<th>priced by<th>decides<th>tables</tr>"
    for one in found.ranked:
        by = "pipeline" if one.report else "compact model"
        step = format_us(one.step_s * US) + ("" if one.fits else ", does not fit")
        decides = one.decides if one.loads is not None else "-"
        cells = (one.name, step, by, decides, kinds_of(one))
        yield "<tr>" + "".join(f"<td>{escape(cell)}" for cell in cells) + "</tr>"
    yield "</table>"


def _plan(one: RankedPlan, longest_s: float) -> Iterator[str]:
    yield f"<h2>{escape(one.name)}: {format_us(one.step_s * US)}</h2>"
    yield f"<p>{escape(reason(one))}</p>"
    if one.host_bytes.any():
        yield f"<p>{escape(on_host(one))}</p>"
    ranks = shown_ranks(one)
    height = _ROW * (len(ranks) + 2)
    yield f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">'
    yield from _legend()
    yield from _bars(one, ranks, longest_s)
    yield "</svg>"


def _legend() -> Iterator[str]:
    memory = _LEFT + _BESIDE
    for x, kind, text in (
        (_LEFT, "lookup", "lookups"),
        (_LEFT + 90, "update", "updates"),
        (memory, "memory", "memory of tables; the line is what they may take"),
    ):
        yield f'<rect class="{kind}" x="{x}" y="2" width="10" height="10"/>'
        yield f'<text x="{x + 15}" y="11">{text}</text>'


def _bars(one: RankedPlan, ranks: Sequence[int], longest_s: float) -> Iterator[str]:
    """Yield seconds to the left and bytes to the right, a row for each rank."""
    lookup_s, update_s = one.seconds("lookup_s"), one.seconds("update_s")
    memory, most = _LEFT + _BESIDE, max(_room(one), float(one.device_bytes.max()))
    for row, rank in enumerate(ranks, 1):
        y, first = row * _ROW, _HALF * float(lookup_s[rank]) / longest_s
        second = _HALF * float(update_s[rank]) / longest_s
        held = _HALF * float(one.device_bytes[rank]) / most
        last = ", last" if rank == one.last else ""
        yield _text(0, y, f"rank {rank}{last}")
        yield _rect("lookup", _LEFT, y, first, format_us(float(lookup_s[rank]) * US))
        later = _LEFT + first
        yield _rect("update", later, y, second, format_us(float(update_s[rank]) * US))
        both = format_us(float(lookup_s[rank] + update_s[rank]) * US)
        yield _text(later + second + 5, y, both)
        size = size_text(float(one.device_bytes[rank]))
        yield _rect("memory", memory, y, held, size)
        yield _text(memory + held + 5, y, size)
    x, bottom = memory + _HALF * _room(one) / most, _ROW * (len(ranks) + 1)
    yield f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{_ROW}" y2="{bottom}"/>'


def _room(one: RankedPlan) -> float:
    return float(one.room_bytes[0])


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y + 11}">{escape(text)}</text>'


def _rect(kind: str, x: float, y: float, width: float, title: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{_HEIGHT}"><title>{escape(title)}</title></rect>'
    )
