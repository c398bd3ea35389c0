// One run: its curves, and everything its log says of it.
import { ask, bytes, clock, duration, h, hbar, number, percent, query, replace, tile, toast } from "./dom.js";
import { Chart, colour, rankMap } from "./charts.js";
import { Curves } from "./curves.js";
import { rows, watch } from "./live.js";
import { title } from "./runs.js";

const section = (name, ...content) => h("section", {}, h("h2", {}, name), ...content);

const tiles = (row, total) => h("div", { class: "tiles" },
  tile(`${number(row.iteration, 7)}${row.max_iter ? ` / ${number(row.max_iter, 7)}` : ""}`, "iteration"),
  tile(number(row.loss), "training loss"),
  row.best ? tile(number(row.best.value), `best ${row.best.name} (at ${row.best.iteration})`) : null,
  tile(number(row.images_per_second, 3), "images per second"),
  row.state === "running" ? tile(duration(row.seconds_left), "time left") : null,
  tile(duration(row.seconds), "training time"),
  row.epoch ? tile(number(row.epoch, 3), "epochs") : null,
  tile(String(row.ranks), row.ranks === 1 ? "rank" : "ranks"),
  total.parameters ? tile(number(total.parameters), "parameters") : null,
  row.skipped ? tile(String(row.skipped), "records skipped") : null);

const facts = (tables) => h("div", { class: "grid3" }, tables.map(([name, lines]) => h("div", { class: "card" }, h("h3", {}, name),
  h("table", { class: "facts" }, h("tbody", {}, lines.map(([a, b]) => h("tr", {}, h("th", { scope: "row" }, a), h("td", {}, b))))))));

function profile(layers) {
  const timed = layers.filter((n) => n.forward + n.backward > 5e-6), most = Math.max(...timed.map((n) => n.forward + n.backward));
  const all = timed.reduce((sum, n) => sum + n.forward + n.backward, 0);
  return h("div", { class: "card" }, h("div", { class: "keys" },
    h("span", {}, h("i", { style: { background: "var(--accent)" } }), "forward"), h("span", {}, h("i", { style: { background: "var(--bar2)" } }), "backward"),
    h("span", {}, `${number(1e3 * all)} ms in all, one leaf`)),
  timed.map((n) => {
    const speed = n.flops && n.forward ? `, ${number(n.flops / n.forward / 1e9, 3)} GFLOP/s forward` : "";
    const bar = hbar(n.name, n.forward / most, `${number(1e3 * (n.forward + n.backward), 3)} ms`, n.backward / most);
    bar.title = `${n.name} (${n.type}): ${percent((n.forward + n.backward) / all)}${speed}`;
    return bar;
  }));
}

function ranks(found) {
  const names = { compute: "compute", data: "waiting for data", exposed: "waiting for others", hidden: "communication beside compute", update: "update" };
  const totals = found.totals.map((parts) => parts.reduce((a, b) => a + b, 0)), most = Math.max(...totals, 1e-12);
  const slowest = found.count > 1 ? h("p", { class: "sub" }, `Slowest: rank ${found.slowest}, in ${percent(found.slowest_share)} of the displays.`) : null;
  return h("div", { class: "card" }, slowest,
    h("div", { class: "keys" }, found.parts.map((part, i) => h("span", {}, h("i", { class: `c${i + 1}` }), names[part]))),
    found.totals.slice(0, 64).map((parts, rank) => h("div", { class: "hbar" }, h("span", {}, `rank ${rank}`),
      h("span", { class: "stack" }, parts.map((value, i) => h("i", { class: `c${i + 1}`, title: `${names[found.parts[i]]}: ${duration(value)}`, style: { width: `${100 * value / most}%` } }))),
      h("output", {}, duration(totals[rank])))),
    found.count > 1 ? [h("h3", {}, "Timeline"), h("p", { class: "sub" }, "Time goes to the right; the darker, the longer a rank was busy beside the slowest."), rankMap(found.busy)] : null);
}

// One iteration: a row for each thread of each rank, time to the right.
function iteration(found) {
  const kinds = ["data", "forward", "backward", "exchange", "waiting", "update"];
  const end = Math.max(1e-12, ...found.ranks.flat().map((span) => span.stop));
  const lane = (spans) => h("span", { class: "lane" }, spans.map((span) => h("i", { class: `k-${span.kind}`,
    title: `${span.kind}: ${number(1e3 * (span.stop - span.start), 3)} ms`,
    style: { left: `${100 * span.start / end}%`, width: `${Math.max(0.1, 100 * (span.stop - span.start) / end)}%` } })));
  return h("div", { class: "card", id: "iteration" },
    h("p", { class: "sub" }, `What every rank did in iteration ${found.iteration}, from the moment when all began it; ${number(1e3 * end, 3)} ms in all.`),
    h("div", { class: "keys" }, kinds.map((kind) => h("span", {}, h("i", { class: `k-${kind}` }), kind))),
    found.ranks.slice(0, 64).map((spans, rank) => [...new Set(spans.map((span) => span.lane))].sort().map((name, i) =>
      h("div", { class: "laned" }, h("span", { title: found.hosts[rank] ?? "" }, i ? "" : `rank ${rank}`), lane(spans.filter((span) => span.lane === name))))));
}

function memory(found, chart, overTime) {
  const planned = Object.entries(found.planned), most = Math.max(1, ...planned.map(([, size]) => size));
  if (overTime.memory?.length) {
    chart.show(overTime.memory.slice(0, 16).map((sizes, rank) => ({ label: overTime.count > 1 ? `rank ${rank} (MiB)` : "in memory (MiB)", colour: colour(rank),
      x: overTime.iterations, y: sizes.map((size) => size / 2 ** 20) })));
  }
  return h("div", { class: "grid2" }, h("div", { class: "card" }, h("h3", {}, "Planned for one rank"), planned.map(([name, size]) => hbar(name, size / most, bytes(size))),
    h("h3", {}, "Largest tops"), found.tops.map(([name, size]) => hbar(name, size / found.tops[0][1], bytes(size)))),
  overTime.memory?.length ? chart.node : null);
}

const WORDS = { started: "started", saved: "saved", notfinite: "not finite", finished: "finished" };
const event = (each) => h("li", { class: each.event === "notfinite" ? "bad" : "" }, h("b", {}, each.event === "started" && each.iteration ? "restarted" : WORDS[each.event]),
  ` at iteration ${each.iteration}`, each.path ? `: ${each.path}` : "", each.done ? `: ${each.what}; ${each.done}` : "", each.early ? " (early)" : "",
  h("br"), h("small", {}, clock(each.time)));

function files(id, found) {
  const newest = found.snapshots[0];
  const link = (path, values, text) => h("a", { href: `/api/runs/${id}/${path}?${query(values)}`, download: true }, text);
  return h("div", { class: "card scroll" }, newest ? h("div", { class: "bar" },
    link("archive", { snapshot: newest.name }, "Newest weights with net, labels and mean (.zip)"),
    link("onnx", { snapshot: newest.name }, "as ONNX")) : null,
  h("table", {}, h("tbody", {}, found.files.map((f) => h("tr", {}, h("td", {}, link("file", { name: f.name }, f.name)), h("td", { class: "n" }, bytes(f.size)),
    h("td", { class: "n less" }, clock(f.written)), h("td", {}, f.name.includes(".caffemodel") ? link("archive", { snapshot: f.name }, "zip") : ""))))));
}

export function showRun(main, id) {
  const curves = new Curves(), parts = h("div", {}), head = h("div", {}), chart = new Chart("memory");
  let drawn = "", busy = false, gone = false;
  replace(main, head, curves.node, parts);

  async function load() {
    const row = rows.get(id), state = row && `${row.version} ${row.state}`;
    if (!row || state === drawn || busy || gone) return;
    busy = true;
    try {
      const found = await ask(`/api/runs/${id}`);
      drawn = state;
      if (!gone) draw(found);
    } catch (error) { toast(error.message); return; } finally { busy = false; }
    load(); // what came meanwhile may be the last news there are
  }

  function draw(found) {
    const { row } = found, scrolled = parts.querySelector("pre")?.scrollTop;
    replace(head, h("h1", {}, title(row)), h("p", { class: "sub" }, h("span", { class: `state ${row.state}` }, row.state), ` · ${row.net} · ${row.settings.backend ?? ""} · began ${clock(row.began)}`),
      tiles(row, found.total));
    curves.show([{ ...row, title: title(row), colour: colour(0) }]);
    const log = h("pre", { id: "tail", tabindex: "0" }, found.tail.join("\n"));
    replace(parts,
      found.facts.length ? section("Facts to compare by", facts(found.facts)) : null,
      found.profile.length ? section("Time per layer", profile(found.profile)) : null,
      found.ranks.count ? section("Ranks", ranks(found.ranks)) : null,
      found.timeline ? section("An iteration, rank by rank", iteration(found.timeline)) : null,
      section("Memory", memory(found.memory, chart, found.ranks)),
      h("div", { class: "grid2" }, section("Events", h("ul", { class: "list card", id: "events" }, found.events.map(event))), section("Log", log)),
      section("Files", files(id, found)));
    log.scrollTop = scrolled ?? log.scrollHeight;
  }

  load();
  const stop = watch((changed) => { if (changed.has(id)) load(); });
  return () => { gone = true; stop(); curves.end(); chart.end(); };
}

// What the other views of a run need before they can begin.
export const details = (id) => ask(`/api/runs/${id}`);

