// Charts of curves: uPlot, with zoom that asks the server for more points, and keys to zoom by.
import { h, number } from "./dom.js";

const COLOURS = ["#3b7dc4", "#d9673f", "#3f9f6b", "#9068bd", "#c79d2f", "#3faaa9", "#c2507a", "#7f8c9a", "#5b62d6", "#8a9a3a"];
export const colour = (index) => COLOURS[index % COLOURS.length];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Chart {
  // `zoomed` is told the new range of x, or null for all of it.
  constructor(title, zoomed = () => {}, height = 230) {
    this.title = title;
    this.zoomed = zoomed;
    this.height = height;
    this.body = h("div", {});
    this.node = h("figure", {
      class: "card chart", tabindex: "0", style: { margin: 0 }, "data-chart": title,
      "aria-label": `${title}; plus and minus zoom, arrows move, 0 shows all`, onkeydown: (e) => this.key(e),
    }, h("h3", {}, title), this.body);
    this.plot = null;
    this.range = null;
    this.watcher = new ResizeObserver(() => {
      const width = this.body.clientWidth;
      if (this.plot && width) this.plot.setSize({ width, height: this.height });
    });
    this.watcher.observe(this.body);
  }

  // lines: {label, x, y, colour, dash, raw (not in the legend), points (dots)}
  show(lines, { logX = false, logY = false, axis = "iteration" } = {}) {
    this.lines = lines;
    const tables = lines.map((line) => {
      const keep = line.x.map((x, i) => !(logX && x <= 0) && !(logY && line.y[i] <= 0));
      return [line.x.filter((_, i) => keep[i]), line.y.filter((_, i) => keep[i])];
    });
    const data = tables.length ? uPlot.join(tables) : [[]];
    this.node.dataset.points = Math.max(0, ...lines.map((line) => line.x.length));
    this.node.dataset.last = lines.length ? Math.max(...lines.map((line) => line.x.at(-1) ?? 0)) : "";
    const key = JSON.stringify([lines.map((l) => [l.label, l.colour, l.raw]), logX, logY, axis, document.documentElement.dataset.theme]);
    if (this.plot && key === this.key_) {
      this.plot.setData(data, !this.range);
      if (this.range) this.limit(this.range);
      return;
    }
    this.key_ = key;
    if (this.plot) this.plot.destroy();
    const soft = css("--soft"), line = css("--line");
    const axes = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui" };
    this.plot = new uPlot({
      width: Math.max(200, this.body.clientWidth || 400), height: this.height,
      cursor: { sync: { key: axis }, drag: { x: true, y: false }, points: { size: 7 } },
      scales: { x: { time: false, distr: logX ? 3 : 1 }, y: { distr: logY ? 3 : 1 } },
      axes: [{ ...axes, label: axis, labelSize: 18, labelFont: "12px system-ui", size: 38 },
        { ...axes, size: 56, values: (_, splits) => splits.map((v) => (v === null ? "" : number(v, 3))) }],
      legend: { live: true },
      series: [{ label: axis, value: (u, v) => number(v ?? u.data[0].at(-1), 5) }, ...lines.map((each) => ({
        label: each.label, class: each.raw ? "raw" : undefined, stroke: each.colour + (each.raw ? "40" : ""), width: each.raw ? 1 : 1.8,
        dash: each.dash, spanGaps: true, points: { show: Boolean(each.dots), size: 6, fill: each.colour },
        value: (u, v, i, at) => (v === null || v === undefined ? nearest(u, i, at) : number(v, 5)),
      }))],
      hooks: {
        setSelect: [(u) => { if (u.select.width > 3) this.zoom([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]); }],
        ready: [(u) => u.over.addEventListener("dblclick", () => this.zoom(null))],
      },
    }, data, this.body);
    if (this.range) this.limit(this.range);
  }

  limit([min, max]) { this.plot.setScale("x", { min, max }); }

  zoom(range) {
    this.range = range;
    this.zoomed(range, this);
  }

  key(event) {
    if (!this.plot || !["+", "=", "-", "0", "ArrowLeft", "ArrowRight"].includes(event.key)) return;
    const { min, max } = this.plot.scales.x, middle = (min + max) / 2, half = (max - min) / 2;
    event.preventDefault();
    if (event.key === "0") this.zoom(null);
    else if (event.key.startsWith("Arrow")) {
      const by = (event.key === "ArrowLeft" ? -1 : 1) * half / 2;
      this.zoom([min + by, max + by]);
    } else {
      const wide = event.key === "-" ? 2 * half : half / 2;
      this.zoom([middle - wide, middle + wide]);
    }
  }

  end() {
    this.watcher.disconnect();
    if (this.plot) this.plot.destroy();
    this.plot = null;
  }
}

// Curves have points at different places: the last one before the cursor counts, or the last of all.
function nearest(u, series, at) {
  const values = u.data[series];
  for (let i = at ?? values.length - 1; i >= 0; i -= 1) if (values[i] !== null && values[i] !== undefined) return number(values[i], 5);
  return "–";
}

// Histograms side by side: time runs to the right, values upward.
export function heat(looks, part, parameter) {
  const rows = looks.map((look) => look.parameters[parameter]?.[part]).filter(Boolean);
  const canvas = h("canvas", { class: "heat", width: Math.max(1, rows.length) * 8, height: 128, role: "img",
    "aria-label": `histograms of ${part} over time` });
  const low = Math.min(...rows.map((r) => r.low)), high = Math.max(...rows.map((r) => r.high));
  const context = canvas.getContext("2d"), ink = css("--accent");
  context.fillStyle = css("--back");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = ink;
  rows.forEach((row, i) => {
    const most = Math.max(...row.counts), wide = (row.high - row.low) / row.counts.length;
    row.counts.forEach((count, k) => {
      const from = high > low ? (row.low + k * wide - low) / (high - low) : 0, to = high > low ? (row.low + (k + 1) * wide - low) / (high - low) : 1;
      context.globalAlpha = Math.sqrt(count / most);
      context.fillRect(8 * i, (1 - to) * 128, 8, Math.max(1, (to - from) * 128));
    });
  });
  return h("div", {}, canvas, h("div", { class: "keys" }, h("span", {}, `iteration ${looks[0].iteration} to ${looks.at(-1).iteration}`),
    h("span", {}, `values ${number(low, 3)} to ${number(high, 3)}`)));
}

export function columns(histogram) {
  const canvas = h("canvas", { class: "heat", width: 32 * 10, height: 120, role: "img", "aria-label": "histogram" });
  const context = canvas.getContext("2d"), most = Math.max(1, ...histogram.counts);
  context.fillStyle = css("--accent");
  histogram.counts.forEach((count, i) => context.fillRect(10 * i + 1, 120 - 116 * count / most, 8, 116 * count / most));
  return h("div", {}, canvas, h("div", { class: "keys" }, h("span", {}, `${number(histogram.low, 3)} to ${number(histogram.high, 3)}`)));
}

// One row for each rank: the darker, the nearer to the slowest at that time.
export function rankMap(busy) {
  const wide = busy[0].length, canvas = h("canvas", { class: "heat", width: wide * 4, height: busy.length * 12, role: "img",
    "aria-label": "busy time of every rank over time" });
  canvas.style.height = `${Math.min(320, busy.length * 18)}px`;
  const context = canvas.getContext("2d");
  context.fillStyle = css("--accent");
  for (let i = 0; i < wide; i += 1) {
    const column = busy.map((row) => row[i]), most = Math.max(...column, 1e-12);
    column.forEach((value, rank) => {
      context.globalAlpha = 0.08 + 0.92 * (value / most) ** 3;
      context.fillRect(4 * i, 12 * rank, 4, 11);
    });
  }
  return canvas;
}
