/* Boxes in lanes over time, on uPlot's axis: zoomed by wheel, drag, buttons and keys, searched by name. */
for (const figure of document.querySelectorAll("figure.timeline")) {
  const LANE = 44, BOX_TOP = 17, BOX = 24, LEAST_NS = 20, STILL_MS = 300;
  const data = perfc.own(figure), tip = perfc.tip(figure), place = figure.querySelector(".plot");
  const input = figure.querySelector("input"), found = figure.querySelector(".found");
  const colorName = (color) => (color < 8 ? `--c${color}` : "--grey");

  for (const lane of data.lanes) {
    let at = 0;
    lane.start = lane.gap.map((gap, index) => {
      const start = at + gap;
      at = start + lane.ns[index];
      return start;
    });
  }
  const end = (lane, index) => lane.start[index] + lane.ns[index];
  const total = Math.max(1, ...data.lanes.map((lane) => end(lane, lane.start.length - 1) || 0));
  const time = (ns) => perfc.amount(ns / 1e3, "us");
  const called = (lane, index) => {
    const more = (lane.merged[index] ?? 1) - 1;
    return data.names[lane.name[index]] + (more ? ` and ${more} more` : "");
  };

  let words = "", picked = new Set(), named = null, matches = [], next = 0, plot = null;
  const isShown = (lane, index) =>
    (!picked.size || picked.has(lane.kind[index])) && (!named || named[lane.name[index]]);

  /** The first slice of a lane that ends after a time. */
  const first = (lane, ns) => {
    let low = 0, high = lane.start.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (end(lane, middle) > ns) high = middle;
      else low = middle + 1;
    }
    return low;
  };

  const drawLane = (u, number, colors) => {
    const { ctx, bbox } = u, pixel = devicePixelRatio, lane = data.lanes[number];
    const { min, max } = u.scales.x, wide = bbox.width / (max - min);
    const top = bbox.top + (number * LANE + BOX_TOP) * pixel;
    let reached = -1;
    for (let index = first(lane, min); index < lane.start.length && lane.start[index] < max; index++) {
      const left = Math.max(bbox.left, bbox.left + (lane.start[index] - min) * wide);
      const right = Math.min(bbox.left + bbox.width, bbox.left + (end(lane, index) - min) * wide);
      const shown = isShown(lane, index), marked = shown && (picked.size || named);
      if (right - reached < 0.6 && !marked) continue;
      reached = Math.max(right, left + 1);
      ctx.globalAlpha = shown ? 1 : 0.16;
      ctx.fillStyle = colors[data.colors[lane.kind[index]]];
      ctx.fillRect(left, top, Math.max(right - left - (right - left > 4 ? pixel : 0), marked ? 1.5 * pixel : 0.8), BOX * pixel);
      if (right - left < 44 * pixel || !shown) continue;
      ctx.fillStyle = colors.on;
      ctx.save();
      ctx.beginPath();
      ctx.rect(left, top, right - left - 5 * pixel, BOX * pixel);
      ctx.clip();
      ctx.fillText(called(lane, index), left + 5 * pixel, top + BOX * pixel / 2);
      ctx.restore();
    }
    ctx.globalAlpha = 1;
    ctx.fillStyle = colors.dim;
    ctx.fillText(lane.label, bbox.left + 5 * pixel, bbox.top + (number * LANE + 9) * pixel);
  };

  const draw = (u) => {
    const colors = [0, 1, 2, 3, 4, 5, 6, 7, 8].map((number) => perfc.color(colorName(number)));
    colors.on = perfc.color("--on");
    colors.dim = perfc.color("--dim");
    u.ctx.save();
    u.ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    u.ctx.textBaseline = "middle";
    u.ctx.textAlign = "left";
    for (const number of data.lanes.keys()) drawLane(u, number, colors);
    u.ctx.restore();
  };

  const describe = (lane, index) =>
    `${called(lane, index)}\n${data.kinds[lane.kind[index]]}, ${time(lane.ns[index])}, from ${time(lane.start[index])}`;

  const point = (u) => {
    const { left, top } = u.cursor, number = Math.floor(top / LANE), lane = data.lanes[number];
    if (left < 0 || !lane) return tip.hide();
    const ns = u.posToVal(left, "x"), near = 3 / u.bbox.width * devicePixelRatio * (u.scales.x.max - u.scales.x.min);
    const index = first(lane, ns - near);
    if (index >= lane.start.length || lane.start[index] > ns + near) return tip.hide();
    tip.show(describe(lane, index), left + place.offsetLeft, number * LANE + BOX_TOP + place.offsetTop);
  };

  const show = (from, to) => {
    const length = Math.min(Math.max(to - from, LEAST_NS), total);
    const start = Math.min(Math.max((from + to - length) / 2, 0), total - length);
    plot.setScale("x", { min: start, max: start + length });
    place.dataset.from = start;
    place.dataset.to = start + length;
  };
  const zoom = (factor, at = 0.5) => {
    const { min, max } = plot.scales.x, fixed = min + at * (max - min);
    const length = Math.min(Math.max((max - min) * factor, LEAST_NS), total);
    show(fixed - at * length, fixed + (1 - at) * length);
  };
  const move = (share) => {
    const { min, max } = plot.scales.x, by = share * (max - min);
    const start = Math.min(Math.max(min + by, 0), total - (max - min));
    show(start, start + max - min);
  };

  const search = () => {
    words = input.value.trim().toLowerCase();
    named = words ? data.names.map((name) => name.toLowerCase().includes(words)) : null;
    matches = [];
    next = 0;
    let ns = 0, count = 0;
    if (named || picked.size)
      for (const lane of data.lanes)
        for (const index of lane.start.keys())
          if (isShown(lane, index)) {
            matches.push([lane, index]);
            count += lane.merged[index] ?? 1;
            ns += lane.ns[index];
          }
    const marked = named || picked.size;
    found.textContent = !marked ? "" : count ? `${count.toLocaleString("en")} found, ${time(ns)} in all` : "none found";
    plot?.redraw(false);
  };
  const toNext = () => {
    if (!matches.length) return;
    const [lane, index] = matches[next];
    const room = Math.max(4 * lane.ns[index], 40 * LEAST_NS);
    show(lane.start[index] - room, end(lane, index) + room);
    found.textContent = `${next + 1} of ${matches.length}: ${describe(lane, index).replace("\n", ": ")}`;
    next = (next + 1) % matches.length;
  };
  const actions = { next: toNext, in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.4), right: () => move(0.4), all: () => show(0, total) };
  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all", n: "next", N: "next" };

  const ticks = (_, splits, __, ___, step) => {
    const [size, unit] = total >= 1e9 ? [1e9, "s"] : total >= 1e6 ? [1e6, "ms"] : total >= 1e3 ? [1e3, "us"] : [1, "ns"];
    const decimals = Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9));
    return splits.map((ns) => (ns ? `${(ns / size).toFixed(decimals)} ${unit}` : ""));
  };
  const make = (_, width) => {
    plot = new uPlot({
      width, height: data.lanes.length * LANE + 28, legend: { show: false }, padding: [2, 0, 0, 0],
      scales: { x: { time: false, range: (u, min, max) => [Math.max(min, 0), Math.min(max, total)] }, y: { range: [0, 1] } },
      axes: [{ stroke: () => perfc.color("--dim"), font: "12px system-ui, sans-serif", space: 84, size: 24, gap: 4,
        grid: { stroke: () => perfc.color("--line"), width: 1 }, ticks: { show: false }, values: ticks }, { show: false }],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false } },
      hooks: { draw: [draw], setCursor: [point], setScale: [(u) => {
        place.dataset.from = u.scales.x.min;
        place.dataset.to = u.scales.x.max;
      }] },
      series: [{}, { paths: () => null, points: { show: false } }],
    }, [[0, total], [0, 1]], place);
    return plot;
  };
  perfc.drawn(figure, make);

  input.addEventListener("input", search);
  input.addEventListener("keydown", (event) => event.key === "Enter" && toNext());
  for (const button of figure.querySelectorAll("[data-do]"))
    button.addEventListener("click", () => plot && actions[button.dataset.do]());
  place.addEventListener("keydown", (event) => {
    const action = keys[event.key];
    if (!action || !plot || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[action]();
  });

  /* A page that scrolls past goes on scrolling, and zooming out of all of it does too. */
  let scrolled = -Infinity;
  addEventListener("scroll", () => (scrolled = performance.now()), { passive: true });
  place.addEventListener("wheel", (event) => {
    if (!plot || performance.now() - scrolled < STILL_MS) return;
    const across = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const all = plot.scales.x.max - plot.scales.x.min >= total * (1 - 1e-9);
    if (all && (across || event.deltaY > 0)) return;
    event.preventDefault();
    const box = plot.over.getBoundingClientRect();
    if (across) move(event.deltaX / box.width);
    else zoom(Math.exp(Math.max(-0.7, Math.min(0.7, event.deltaY / 300))), Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1));
  }, { passive: false });

  /* A button for each colour; kinds that share one are shown together. */
  const times = data.kinds.map(() => 0);
  for (const lane of data.lanes)
    if (lane.summed) for (const [index, kind] of lane.kind.entries()) times[kind] += lane.ns[index];
  for (const color of [...new Set(data.colors)].sort((a, b) => a - b)) {
    const kinds = [...data.kinds.keys()].filter((kind) => data.colors[kind] === color);
    const ns = kinds.reduce((sum, kind) => sum + times[kind], 0);
    const name = kinds.length > 1 ? `${kinds.length} others` : data.kinds[kinds[0]];
    const button = perfc.element("button", { type: "button", "aria-pressed": "false" });
    button.title = `Show these alone: ${kinds.map((kind) => data.kinds[kind]).join(", ")}`;
    button.append(perfc.swatch(colorName(color)), ns ? `${name} ${time(ns)}` : name);
    button.addEventListener("click", () => {
      const add = !picked.has(kinds[0]);
      for (const kind of kinds) if (add) picked.add(kind); else picked.delete(kind);
      button.setAttribute("aria-pressed", add);
      search();
    });
    const item = perfc.element("li");
    item.append(button);
    figure.querySelector(".legend").append(item);
  }
}
