"""The look of HTML pages, and the script that sorts their tables."""

from __future__ import annotations

PAGE_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #4878a8; --dim: #888; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 90em;
  padding: 0 1em; }
h1 { font-size: 1.25em; } h2 { font-size: 1.05em; margin-top: 2em; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .15em .8em .15em 0; text-align: left; vertical-align: top; }
.number { text-align: right; white-space: nowrap; }
.nodes { font-size: 12px; width: 100%; }
.nodes td { border-top: 1px solid var(--line); overflow-wrap: anywhere; }
.nodes th { white-space: nowrap; cursor: pointer; position: sticky; top: 0;
  background: Canvas; }
.nodes th::after { content: " \\2195"; color: var(--dim); }
.bar { background: var(--bar); display: inline-block; height: .8em; }
.note { color: var(--dim); }
svg { width: 100%; background: #8881; }
svg text { fill: currentColor; font-size: 11px; }
"""

PAGE_SCRIPT = """
for (const heading of document.querySelectorAll(".nodes th")) {
  heading.addEventListener("click", () => {
    const table = heading.closest("table"), body = table.tBodies[0];
    const column = heading.cellIndex, down = heading.dataset.down !== "1";
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].innerText;
    const order = (a, b) => {
      const x = key(a), y = key(b), n = Number(x) - Number(y);
      return (Number.isNaN(n) ? x.localeCompare(y) : n) * (down ? -1 : 1);
    };
    for (const other of table.querySelectorAll("th")) delete other.dataset.down;
    heading.dataset.down = down ? "1" : "0";
    body.append(...[...body.rows].sort(order));
  });
}
"""
