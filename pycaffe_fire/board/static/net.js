// The net drawn: zoom and move it, open a layer.
import { ask, bytes, flops, h, number, query, replace, s, segments, shape, tile, toast } from "./dom.js";
import { Chart, colour, columns, heat } from "./charts.js";
import { snapshotChoice } from "./curves.js";
import { details } from "./run.js";
import { title } from "./runs.js";

class Canvas {
  constructor(drawn, open) {
    const wide = Math.max(drawn.width, 420);
    this.whole = [(drawn.width - wide) / 2, 0, wide, drawn.height];
    const path = (points) => `M${points[0]} ${points.slice(1).map((p, i) => (i % 3 === 0 ? "C" : "") + p).join(" ")}`;
    const node = (box) => s("g", { class: `node f-${box.family}`, tabindex: "0", role: "button", "data-layer": box.layers[0], "aria-label": `layer ${box.title}`,
      onclick: () => this.moved || open(box), onkeydown: (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); open(box); } } },
    s("rect", { x: box.x, y: box.y, width: box.width, height: box.height, rx: 6 }),
    s("text", { class: "t", x: box.x + box.width / 2, y: box.y + 18 }, box.title),
    box.lines.map((text, i) => s("text", { x: box.x + box.width / 2, y: box.y + 34 + 15 * i }, text)));
    this.svg = s("svg", { role: "group", "aria-label": "the net", preserveAspectRatio: "xMidYMin meet" },
      s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" }, s("path", { d: "M0 0L8 4L0 8z", fill: "currentColor" }))),
      drawn.curves.map((points) => s("path", { class: "edge", d: path(points), "marker-end": "url(#arrow)" })), drawn.boxes.map(node));
    const tool = (text, label, act) => h("button", { type: "button", "aria-label": label, onclick: act }, text);
    this.node = h("div", { class: "card netbox" }, this.svg, h("div", { class: "tools" },
      tool("+", "Zoom in", () => this.zoom(0.7)), tool("−", "Zoom out", () => this.zoom(1.4)), tool("Fit", "Show the whole net", () => this.fit())));
    this.svg.addEventListener("wheel", (e) => { e.preventDefault(); this.zoom(e.deltaY > 0 ? 1.15 : 0.87, this.point(e)); }, { passive: false });
    this.drag();
    this.begin();
  }

  set(box) { this.box = box; this.svg.setAttribute("viewBox", box.join(" ")); }
  fit() { this.set([...this.whole]); }

  // Long nets begin at their top, large enough to read.
  begin() {
    const [left, , width, height] = this.whole, tall = Math.min(height, Math.max(width * 0.9, 520));
    this.set([left, 0, width, tall]);
  }

  point(event) {
    const matrix = this.svg.getScreenCTM();
    return matrix ? new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse()) : null;
  }

  zoom(factor, at) {
    const [x, y, w, t] = this.box, p = at || { x: x + w / 2, y: y + t / 2 };
    this.set([p.x - (p.x - x) * factor, p.y - (p.y - y) * factor, w * factor, t * factor]);
  }

  drag() {
    let from = null;
    this.svg.addEventListener("pointerdown", (e) => { from = { x: e.clientX, y: e.clientY, box: this.box }; this.moved = false; });
    this.svg.addEventListener("pointermove", (e) => {
      if (!from) return;
      const matrix = this.svg.getScreenCTM(), dx = (e.clientX - from.x) / matrix.a, dy = (e.clientY - from.y) / matrix.d;
      if (Math.abs(e.clientX - from.x) + Math.abs(e.clientY - from.y) > 4) this.moved = true;
      this.set([from.box[0] - dx, from.box[1] - dy, from.box[2], from.box[3]]);
    });
    for (const name of ["pointerup", "pointerleave"]) this.svg.addEventListener(name, () => { from = null; });
  }

  mark(layer) { this.svg.querySelectorAll(".node").forEach((n) => n.classList.toggle("on", n.dataset.layer === layer)); }
}

function blobTable(found) {
  const lines = [...found.bottoms.map((b) => ["bottom", ...b]), ...found.tops.map((t) => ["top", ...t])];
  return h("table", {}, h("tbody", {}, lines.map(([kind, name, sizes]) => h("tr", {}, h("th", {}, kind), h("td", {}, name), h("td", { class: "n" }, sizes ? shape(sizes) : "–")))));
}

function overTime(looks, ratios) {
  return looks[0].parameters.map((parameter, i) => h("div", {}, h("h3", {}, `${parameter.name}: weights`), heat(looks, "weights", i),
    h("h3", {}, `${parameter.name}: gradients`), heat(looks, "gradients", i), ratios[i].node));
}

export function showNet(main, id) {
  const panel = h("div", { class: "card", id: "layer" }, h("p", { class: "empty" }, "Choose a layer in the drawing.")), place = h("div", {}), controls = h("div", { class: "bar" });
  let which = "train", snapshot = "", canvas = null, shown = null, charts = [];
  replace(main, h("h1", {}, "Net"), controls, h("div", { class: "split" }, place, panel));

  async function draw() {
    try {
      canvas = new Canvas(await ask(`/api/runs/${id}/net`, { net: which }), (box) => open(box.layers, box.layers[0]));
      replace(place, canvas.node);
    } catch (error) { toast(error.message); }
  }

  async function open(layers, name) {
    shown = [layers, name];
    canvas.mark(layers[0]);
    let found;
    try { found = await ask(`/api/runs/${id}/layer`, { net: which, name, snapshot }); } catch (error) { toast(error.message); return; }
    charts.forEach((chart) => chart.end());
    const looks = found.histograms, several = layers.length > 1;
    charts = looks.length ? looks[0].parameters.map((p, i) => {
      const chart = new Chart(`${p.name}: |update| / |weights|`, () => {}, 150);
      chart.lines_ = [{ label: "ratio", colour: colour(i), x: looks.map((l) => l.iteration), y: looks.map((l) => l.parameters[i]?.update_ratio ?? 0), dots: looks.length < 60 }];
      return chart;
    }) : [];
    replace(panel, h("h2", { style: { marginTop: 0 } }, found.name), h("p", { class: "sub" }, found.type),
      several ? segments("Layers in this box", layers.map((each) => [each, each]), name, (each) => open(layers, each)) : null,
      h("div", { class: "tiles" }, tile(number(found.parameters), "parameters"), tile(found.flops ? flops(found.flops) : "–", "forward, one leaf"), tile(bytes(found.memory), "tops"),
        found.time ? tile(`${number(1e3 * (found.time.forward + found.time.backward), 3)} ms`, found.time.inside ? `within ${found.time.inside}` : "forward and backward") : null),
      blobTable(found),
      found.weights.length ? h("h3", {}, "Weights of the snapshot") : null,
      found.weights.map((w, i) => h("div", {}, h("p", { class: "sub" }, `blob ${i}: ${shape(w.shape)}, mean ${number(w.mean, 3)}, deviation ${number(w.std, 3)}`), columns(w.histogram),
        w.shape.length > 1 ? h("img", { class: "wide filters", alt: `weights of ${found.name}, blob ${i}`, src: `/api/runs/${id}/filters?${query({ name: found.name, blob: i, snapshot })}` }) : null)),
      looks.length ? [h("h3", {}, "Over time"), overTime(looks, charts)] : null,
      h("h3", {}, "Prototxt"), h("pre", { tabindex: "0" }, found.prototxt));
    charts.forEach((chart) => chart.show(chart.lines_, { logY: true }));
    if (matchMedia("(max-width: 900px)").matches) panel.scrollIntoView();
  }

  details(id).then((found) => {
    snapshot = found.snapshots[0]?.name ?? "";
    replace(main.querySelector("h1"), title(found.row));
    replace(controls, segments("Net", found.nets.map((each) => [each, each]), which, (each) => { which = each; draw(); }),
      found.snapshots.length ? snapshotChoice(found.snapshots, snapshot, (name) => { snapshot = name; if (shown) open(...shown); }) : null);
    return draw();
  }).catch((error) => toast(error.message));
  return () => charts.forEach((chart) => chart.end());
}
