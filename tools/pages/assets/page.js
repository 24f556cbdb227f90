/* What all pages need: how numbers are written, tables that sort and are searched, tips. */
const perfc = (() => {
  const digits = (value, more) =>
    value.toFixed((value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2) + more);
  const scaled = (value, steps, unit, more) => {
    const size = Math.abs(value), sign = value < 0 ? "-" : "";
    for (const [scale, prefix] of steps)
      if (size >= 0.9995 * scale) return `${sign}${digits(size / scale, more)} ${prefix}${unit}`;
    return `${sign}${digits(size, more)} ${unit}`;
  };
  const TIMES = [[1e6, "s"], [1e3, "ms"], [1, "us"], [1e-3, "ns"]];
  const BYTES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
  const DECIMAL = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

  /** Writes an amount as reports do: three digits and a unit that fits. */
  const amount = (value, unit, more = 0) => {
    if (value === 0) return unit === "us" ? "0 us" : unit === "bytes" ? "0 B" : `0 ${unit}`.trim();
    if (unit === "us") return scaled(value, TIMES, "", more).trim();
    if (unit === "bytes") return value < 1024 ? `${value.toFixed(0)} B` : scaled(value, BYTES, "", more).trim();
    if (!unit && Math.abs(value) < 1e4) return String(Number(value.toPrecision(4 + more)));
    return scaled(value, DECIMAL, unit, more).trim();
  };

  /** Writes an amount beside an axis: no digits that are 0. */
  const tick = (value, unit, more = 0) => amount(value, unit, more).replace(/(\.\d*?)0+(?=\s|$)/, "$1").replace(/\.(?=\s|$)/, "");

  /** What stands at places of an axis: as few digits as tell them apart. */
  const ticks = (values, unit) => {
    const written = (more) => values.map((value) => (value === null ? "" : tick(value, unit, more)));
    const apart = (texts) => new Set(texts.filter(Boolean)).size === texts.filter(Boolean).length;
    const more = [0, 1, 2, 3].find((count) => apart(written(count)));
    return written(more ?? 3);
  };

  const element = (name, own = {}, text = "") => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(own)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };

  const color = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();

  /** A square of a colour, as the legend has it; shapes need no inline style. */
  const swatch = (name) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const box = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    made.setAttribute("viewBox", "0 0 10 10");
    made.setAttribute("aria-hidden", "true");
    box.setAttribute("width", "10");
    box.setAttribute("height", "10");
    box.setAttribute("rx", "2");
    box.style.fill = `var(${name})`;
    made.append(box);
    return made;
  };

  /** What is said beside the pointer; it stays inside its figure. */
  const tip = (figure) => {
    const made = element("div", { class: "tip", hidden: "" });
    figure.append(made);
    return {
      hide: () => (made.hidden = true),
      show: (text, left, top) => {
        made.textContent = text;
        made.hidden = false;
        const room = figure.clientWidth - made.offsetWidth;
        const above = top - made.offsetHeight - 8;
        made.style.left = `${Math.max(0, Math.min(left + 10, room))}px`;
        made.style.top = `${above < 0 ? top + 16 : above}px`;
      },
    };
  };

  /** Draws once a figure has a width, as one in a fold has not before it is opened, and
      again as the width or the colours change. */
  const drawn = (figure, make) => {
    let plot = null;
    const place = figure.querySelector(".plot");
    new ResizeObserver(() => {
      const width = place.clientWidth;
      if (!width) return;
      if (!plot) plot = make(place, width);
      else if (plot.width !== width) plot.setSize({ width, height: plot.height });
    }).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot?.redraw());
  };

  const own = (figure) => JSON.parse(figure.querySelector("script[type='application/json']").textContent);

  for (const button of document.querySelectorAll("th button"))
    button.addEventListener("click", () => {
      const heading = button.parentElement, table = heading.closest("table"), body = table.tBodies[0];
      const column = heading.cellIndex, down = heading.getAttribute("aria-sort") !== "descending";
      const key = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const order = (a, b) => {
        const x = key(a), y = key(b), number = Number(x) - Number(y);
        return (Number.isNaN(number) ? x.localeCompare(y) : number) * (down ? -1 : 1);
      };
      for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...[...body.rows].sort(order));
    });

  for (const input of document.querySelectorAll("input.filter"))
    input.addEventListener("input", () => {
      const rows = input.closest(".table").querySelector("tbody").rows, text = input.value.toLowerCase();
      let count = 0;
      for (const row of rows) {
        row.hidden = !row.textContent.toLowerCase().includes(text);
        count += row.hidden ? 0 : 1;
      }
      input.nextElementSibling.textContent = text ? `${count} of ${rows.length} rows` : "";
    });

  /** Says of boxes that are wider than their place that they scroll. */
  const widths = new ResizeObserver((boxes) => {
    for (const { target } of boxes) target.classList.toggle("wide", target.scrollWidth > target.clientWidth);
  });
  for (const box of document.querySelectorAll(".scroll")) widths.observe(box);

  return { widths, amount, tick, ticks, element, color, swatch, tip, drawn, own };
})();
