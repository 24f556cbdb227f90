/* Lines and points over two axes. uPlot has the axes and lines; points have sizes of their own. */
for (const figure of document.querySelectorAll("figure.chart")) {
  const MOST_ROWS = 500, NEAR = 28;
  const data = perfc.own(figure), tip = perfc.tip(figure);
  const colorName = (series) => (series.color < 0 ? "--grey" : `--c${series.color % 8}`);
  const hidden = new Set();

  /* An area lies on those after it. */
  const isArea = (series) => series.drawn === "area";
  const top = (number, index) => !isArea(data.series[number]) ? data.series[number].y[index]
    : data.series.slice(number).reduce((sum, series) => sum + (isArea(series) ? series.y[index] : 0), 0);

  /* uPlot wants one column of x: every point has a place of its own in it. */
  const points = data.series.flatMap((series, number) =>
    series.x.map((x, index) => ({ number, index, x, y: series.y[index], top: top(number, index) })));
  points.sort((a, b) => a.x - b.x || a.number - b.number || a.index - b.index);
  const columns = [points.map((point) => point.x)];
  for (const number of data.series.keys())
    columns.push(points.map((point) => (point.number === number ? point.top : undefined)));

  const written = (axis, value) => (axis.words.length ? axis.words[value] ?? "" : perfc.amount(value, axis.unit));
  const note = (point) => {
    const series = data.series[point.number];
    const numbers = `${written(data.x, point.x)}, ${written(data.y, point.y)}`;
    return [series.name, series.notes[point.index], numbers].filter(Boolean).join("\n");
  };

  /** Which words have room beside each other: all, each second, each third, ... */
  const shown = (words, width) => {
    const longest = 7 * Math.max(...words.map((word) => word.length)) + 8;
    const each = Math.max(1, Math.ceil((words.length * longest) / Math.max(width - 90, 1)));
    return [...words.keys()].filter((number) => number % each === 0);
  };

  /** Places of a logarithmic axis, every so many that they have room: powers of ten, of few
      also 2 and 5 times them; of bytes powers of two. */
  const powers = (own) => (plot, number, low, high, _, space) => {
    const base = own.unit === "bytes" ? 2 : 10, scale = (value) => Math.log(value) / Math.log(base);
    const first = Math.floor(scale(low)), last = Math.ceil(scale(high));
    const digits = base === 10 && last - first < 5 ? [1, 2, 5] : [1];
    const all = [...Array(last - first + 1).keys()].flatMap((step) => digits.map((digit) => digit * base ** (first + step)));
    const inside = all.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
    const length = (number ? plot.bbox.height : plot.bbox.width) / devicePixelRatio;
    const every = Math.max(1, Math.ceil((inside.length * 0.75 * space) / Math.max(length, 1)));
    const few = digits.length > 1 && every > 1 ? inside.filter((value) => all.indexOf(value) % 3 === 0) : inside;
    const shown = few.length < inside.length ? few : inside.filter((_, index) => index % every === 0);
    return shown.length ? shown : [low, high];
  };
  const axis = (own, vertical) => ({
    ...(vertical ? {} : { label: own.title, labelSize: 18, labelGap: 0 }),
    size: vertical ? 82 : 30, gap: 5,
    ...(own.unit === "bytes" ? { incrs: [...Array(60).keys()].map((power) => 2 ** power) } : {}),
    font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif",
    stroke: () => perfc.color("--dim"),
    grid: { stroke: () => perfc.color("--line"), width: 1 },
    ticks: { show: false },
    space: vertical ? 32 : 64,
    values: (_, splits) => own.words.length
      ? splits.map((value) => (value === null ? "" : written(own, value))) : perfc.ticks(splits, own.unit),
    ...(own.words.length ? { splits: (plot) => shown(own.words, plot.width) } : own.log ? { splits: powers(own), filter: (_, splits) => splits } : {}),
  });
  /* An amount begins at 0 unless that would hide how it changes; time and areas have no margins. */
  const areas = data.series.some(isArea);
  const range = (own, vertical) => (_, low, high) => {
    if (areas && !vertical) return [low, high];
    const from = areas || (low >= 0 && low < 0.7 * high) ? 0 : low;
    const margin = 0.06 * (high - from || Math.abs(high) || 1);
    return [from && from - margin, high + margin];
  };
  const scale = (own, vertical) => {
    if (own.words.length) return { time: false, range: [-0.5, own.words.length - 0.5] };
    const around = (_, low, high) => [low / 1.6, high * 1.6];
    return own.log ? { time: false, distr: 3, range: around } : { time: false, range: range(own, vertical) };
  };

  const drawPoints = (plot) => {
    const { ctx } = plot, pixel = devicePixelRatio;
    ctx.save();
    ctx.setLineDash([]);
    ctx.beginPath();
    ctx.rect(plot.bbox.left, plot.bbox.top, plot.bbox.width, plot.bbox.height);
    ctx.clip();
    for (const point of points) {
      const series = data.series[point.number];
      if (series.drawn !== "points" || hidden.has(point.number)) continue;
      const size = 2.5 + 11 * Math.sqrt(series.sizes[point.index] ?? 0.02);
      ctx.beginPath();
      ctx.arc(plot.valToPos(point.x, "x", true), plot.valToPos(point.y, "y", true), size * pixel, 0, 7);
      ctx.fillStyle = ctx.strokeStyle = perfc.color(colorName(series));
      ctx.globalAlpha = 0.55;
      ctx.fill();
      ctx.globalAlpha = 1;
      ctx.stroke();
    }
    ctx.restore();
  };

  const point = (plot) => {
    const { left } = plot.cursor;
    let nearest = null, least = NEAR;
    for (const one of left < 0 ? [] : points) {
      if (hidden.has(one.number)) continue;
      const away = Math.hypot(plot.valToPos(one.x, "x") - left, plot.valToPos(one.top, "y") - plot.cursor.top);
      if (away < least) [nearest, least] = [one, away];
    }
    if (!nearest) return tip.hide();
    const box = plot.over, place = figure.querySelector(".plot");
    tip.show(note(nearest), plot.valToPos(nearest.x, "x") + box.offsetLeft + place.offsetLeft,
      plot.valToPos(nearest.top, "y") + box.offsetTop + place.offsetTop);
  };

  const steps = uPlot.paths.stepped({ align: 1 }), line = uPlot.paths.linear();
  const paths = { points: () => null, line, dashes: line, steps, area: steps };

  /** Names of lines, beside their ends; a line that would cover one is left to the table. */
  const drawLabels = (plot) => {
    const { ctx, bbox } = plot, pixel = devicePixelRatio;
    ctx.save();
    ctx.font = `${12 * pixel}px system-ui, sans-serif`;
    ctx.fillStyle = perfc.color("--dim");
    for (const series of data.series) {
      if (!series.label) continue;
      const atEnd = series.label === "end", index = atEnd ? series.x.length - 1 : 0;
      const x = Math.min(Math.max(plot.valToPos(series.x[index], "x", true), bbox.left), bbox.left + bbox.width);
      ctx.textAlign = atEnd ? "right" : "left";
      ctx.textBaseline = atEnd ? "bottom" : "top";
      const y = plot.valToPos(series.y[index], "y", true) + (atEnd ? -4 : 2) * pixel;
      ctx.fillText(series.name, x + (atEnd ? -4 : 10) * pixel, y);
    }
    ctx.restore();
  };
  const make = (place, width) => new uPlot({
    width, height: data.height, legend: { show: false },
    scales: { x: scale(data.x, false), y: scale(data.y, true) },
    axes: [axis(data.x, false), axis(data.y, true)],
    cursor: { points: { show: false }, drag: { x: false, y: false }, x: false, y: false },
    hooks: { draw: [drawPoints, drawLabels], setCursor: [point] },
    series: [{}, ...data.series.map((series) => ({
      fill: isArea(series) ? () => perfc.color(colorName(series)) : undefined,
      spanGaps: true, width: 1.75, paths: paths[series.drawn], points: { show: false },
      stroke: () => perfc.color(colorName(series)), dash: series.drawn === "dashes" ? [6, 4] : undefined,
    }))],
  }, columns, place);

  let plot = null;
  perfc.drawn(figure, (place, width) => (plot = make(place, width)));
  const named = [...data.series.entries()].filter(([, series]) => !series.label);
  if (named.length > 1)
    for (const [number, series] of named) {
      const button = perfc.element("button", { type: "button", "aria-pressed": "false" });
      button.title = "Hide or show";
      button.append(perfc.swatch(colorName(series)), series.name);
      button.addEventListener("click", () => {
        const show = hidden.delete(number);
        if (!show) hidden.add(number);
        button.classList.toggle("off", !show);
        plot?.setSeries(number + 1, { show });
      });
      const item = perfc.element("li");
      item.append(button);
      figure.querySelector(".legend").append(item);
    }

  /* The numbers, for whoever cannot see the picture; made when they are asked for. */
  const fold = perfc.element("details", { class: "numbers" });
  fold.append(perfc.element("summary", {}, `Numbers (${points.length})`));
  fold.addEventListener("toggle", () => {
    if (fold.childElementCount > 1) return;
    const table = perfc.element("table"), head = table.createTHead().insertRow();
    for (const text of ["", data.x.title, data.y.title, ""])
      head.append(perfc.element("th", { scope: "col" }, text));
    const body = table.createTBody();
    for (const one of points.slice(0, MOST_ROWS)) {
      const series = data.series[one.number], row = body.insertRow();
      for (const text of [series.name, written(data.x, one.x), written(data.y, one.y), series.notes[one.index] ?? ""])
        row.insertCell().textContent = text;
    }
    const box = perfc.element("div", { class: "table" });
    const scroll = perfc.element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Numbers of the chart" });
    scroll.append(table);
    box.append(scroll);
    perfc.widths.observe(scroll);
    if (points.length > MOST_ROWS)
      box.append(perfc.element("p", { class: "dim" }, `The first ${MOST_ROWS} of ${points.length}.`));
    fold.append(box);
  }, { once: true });
  figure.append(fold);
}
