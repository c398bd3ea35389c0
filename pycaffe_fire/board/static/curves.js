// Charts of one or several runs side by side, with their controls; they follow runs that go on.
import { ask, choice, h, replace, segments, toast } from "./dom.js";
import { Chart, colour } from "./charts.js";

const GROUPS = [["loss", (n) => n.includes("loss")], ["scores", () => true]];
const group = (name) => (name === "rate" ? "learning rate" : name === "images_per_second" ? "images per second"
  : GROUPS.find(([, fits]) => fits(name.split("/").pop().toLowerCase()))[0]);
const ORDER = ["loss", "scores", "learning rate", "images per second"];
const DASHES = [undefined, [7, 4], [2, 3], [10, 3, 2, 3]];
const settings = { by: "iteration", smooth: 0, logX: false, logY: false };

export class Curves {
  constructor() {
    this.runs = [];
    this.charts = new Map();
    this.range = null;
    this.grid = h("div", { class: "grid2" });
    this.controls = h("div", { class: "bar" });
    this.node = h("section", {}, this.controls, this.grid);
    this.timer = 0;
  }

  // runs: rows of the table, with the colour each has.
  show(runs) {
    const epochs = runs.some((run) => run.epoch > 0), key = JSON.stringify([epochs, runs.length > 0]);
    this.runs = runs;
    if (key !== this.key) this.drawControls(epochs, runs.length);
    this.key = key;
    this.refresh();
  }

  drawControls(epochs, any) {
    if (!epochs && settings.by === "epoch") settings.by = "iteration";
    const change = (name) => (value) => { settings[name] = value; if (name === "by") this.range = null; this.refresh(true); };
    const tick = (text, name) => h("label", {}, h("input", { type: "checkbox", checked: settings[name], onchange: (e) => change(name)(e.target.checked) }), text);
    replace(this.controls, any ? [
      segments("Horizontal axis", [["iteration", "Iteration"], ["epoch", "Epoch", !epochs], ["hours", "Hours"]], settings.by, change("by")),
      h("label", {}, "Smoothing", h("input", { type: "range", min: "0", max: "10", value: String(settings.smooth), "aria-label": "Smoothing",
        oninput: (e) => change("smooth")(Number(e.target.value)) })),
      tick("log x", "logX"), tick("log y", "logY"),
      h("button", { type: "button", onclick: () => this.zoom(null) }, "Show all"),
    ] : []);
  }

  zoom(range) {
    this.range = range;
    for (const chart of this.charts.values()) chart.range = range;
    this.refresh(true);
  }

  // Asks at most about once a second, and never twice at a time. News that come while a request
  // waits do not put it off: a run with news all the time would never be drawn again.
  refresh(now = false) {
    if (this.timer && !now) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { this.timer = 0; this.load(); }, now ? 30 : this.loaded ? 600 : 0);
  }

  async load() {
    if (this.busy) { this.again = true; return; }
    this.busy = true;
    const values = { by: settings.by, smooth: settings.smooth ? Math.round(1.9 ** settings.smooth) + 1 : 1, points: 900,
      from: this.range?.[0], to: this.range?.[1] };
    try {
      const runs = this.runs;
      const found = await Promise.all(runs.map((run) => ask(`/api/runs/${run.id}/curves`, values)));
      this.draw(runs, found);
      this.loaded = true;
    } catch (error) { toast(error.message); }
    this.busy = false;
    if (this.again) { this.again = false; this.refresh(); }
  }

  draw(runs, found) {
    const panels = new Map(ORDER.map((title) => [title, []]));
    const tests = (name) => name.startsWith("test");
    const sorted = (curves) => Object.entries(curves).sort(([a], [b]) => tests(a) - tests(b));
    found.forEach((curves, k) => sorted(curves).forEach(([name, curve]) => {
      const lines = panels.get(group(name)), several = runs.length > 1;
      const shown = lines.filter((line) => !line.raw), own = shown.filter((line) => line.run === k).length;
      const tint = several ? runs[k].colour : colour(shown.length);
      const common = { colour: tint, run: k };
      if (curve.raw) lines.push({ ...common, label: "", x: curve.raw_x, y: curve.raw, raw: true });
      lines.push({ ...common, label: several ? `${runs[k].title}: ${name}` : name, x: curve.x, y: curve.y,
        dash: several ? DASHES[own % DASHES.length] : undefined, dots: tests(name) && curve.x.length < 60 });
    }));
    for (const [title, lines] of panels) {
      if (!lines.length) {
        this.charts.get(title)?.end();
        this.charts.get(title)?.node.remove();
        this.charts.delete(title);
        continue;
      }
      if (!this.charts.has(title)) {
        this.charts.set(title, new Chart(title, (range) => this.zoom(range)));
        replace(this.grid, ORDER.map((each) => this.charts.get(each)?.node));
      }
      this.charts.get(title).show(lines, { ...settings, axis: settings.by });
    }
  }

  end() {
    clearTimeout(this.timer);
    for (const chart of this.charts.values()) chart.end();
    this.charts.clear();
  }
}

export const snapshotChoice = (snapshots, chosen, choose) => choice("Weights", snapshots.map((each) => [each.name, each.name]), chosen, choose);
