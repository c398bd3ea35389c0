// All runs: a table to filter and sort, and the curves of those that are ticked.
import { duration, h, number, replace } from "./dom.js";
import { colour } from "./charts.js";
import { Curves } from "./curves.js";
import { connect, rows, watch } from "./live.js";

const chosen = new Set();
const tints = new Map();
const view = { filter: "", sort: "began", up: false };

const COLUMNS = [
  ["name", "Run", (r) => title(r)], ["state", "State", (r) => r.state], ["iteration", "Iteration", (r) => r.iteration],
  ["loss", "Loss", (r) => r.loss ?? Infinity], ["best", "Best", (r) => r.best?.value ?? -Infinity],
  ["images_per_second", "Images/s", (r) => r.images_per_second ?? 0], ["seconds_left", "Time left", (r) => r.seconds_left ?? Infinity],
  ["ranks", "Ranks", (r) => r.ranks], ["began", "Settings that differ", (r) => r.began],
];
const LESS = new Set(["state", "images_per_second", "ranks", "began", "seconds_left"]);
const NUMBERS = new Set(["iteration", "loss", "best", "images_per_second", "seconds_left", "ranks"]);

export const title = (row) => (row.folder === "." ? row.name : `${row.folder}/${row.name}`);

// Settings that are not the same in all of these runs.
export function differing(list) {
  const names = new Set(list.flatMap((row) => Object.keys(row.settings)));
  return [...names].filter((name) => new Set(list.map((row) => row.settings[name] ?? "")).size > 1);
}

export function showRuns(main) {
  const curves = new Curves(), table = h("div", { class: "card scroll" }), count = h("p", { class: "sub", role: "status" });
  const filter = h("input", { type: "search", class: "grow", placeholder: "Filter by name, state or setting (base_lr=0.01)", "aria-label": "Filter runs",
    value: view.filter, oninput: (e) => { view.filter = e.target.value; draw(); } });
  const fits = (row) => view.filter.toLowerCase().split(/\s+/).every((word) => {
    const [name, value] = word.split("=");
    if (value !== undefined) return String(row.settings[name] ?? "").toLowerCase().startsWith(value);
    return `${title(row)} ${row.net} ${row.state}`.toLowerCase().includes(word);
  });

  const toggle = (id, on) => {
    if (on) chosen.add(id); else chosen.delete(id);
    draw();
  };

  function line(row, different) {
    if (!tints.has(row.id)) tints.set(row.id, colour(tints.size));
    const share = row.max_iter ? Math.min(1, row.iteration / row.max_iter) : 0;
    return h("tr", { "data-run": row.id },
      h("td", {}, h("input", { type: "checkbox", checked: chosen.has(row.id), "aria-label": `Compare ${title(row)}`, onchange: (e) => toggle(row.id, e.target.checked) })),
      h("td", { class: "name" }, h("i", { class: "swatch", style: { background: tints.get(row.id) } }), h("a", { href: `#/run/${row.id}` }, title(row)),
        h("br"), h("span", { class: `state more ${row.state}` }, row.state), h("small", { class: "less" }, row.net)),
      h("td", { class: "less" }, h("span", { class: `state ${row.state}` }, row.reading ? "reading" : row.state), row.troubles ? h("small", { class: "bad" }, ` ${row.troubles} NaN`) : null),
      h("td", { class: "n" }, number(row.iteration, 7), h("br"), h("span", { class: "meter", title: `${Math.round(100 * share)} %` }, h("i", { style: { width: `${100 * share}%` } }))),
      h("td", { class: "n", "data-loss": row.loss }, number(row.loss)),
      h("td", { class: "n" }, row.best ? [number(row.best.value), h("br"), h("small", {}, row.best.name.split("/").pop())] : "–"),
      h("td", { class: "n less" }, number(row.images_per_second, 3)),
      h("td", { class: "n less" }, row.state === "running" ? duration(row.seconds_left) : h("small", {}, duration(row.seconds))),
      h("td", { class: "n less" }, row.ranks),
      h("td", { class: "less" }, different.slice(0, 8).map((name) => h("span", { class: "chip" }, `${name} `, h("b", {}, row.settings[name] ?? "–")))));
  }

  function draw() {
    const focus = document.activeElement?.getAttribute("aria-label");
    const list = [...rows.values()].filter(fits), [, , value] = COLUMNS.find(([key]) => key === view.sort);
    list.sort((a, b) => { const x = value(a), y = value(b); return (x < y ? -1 : x > y ? 1 : 0) * (view.up ? 1 : -1); });
    const ticked = list.filter((row) => chosen.has(row.id)), different = differing(ticked.length > 1 ? ticked : list);
    const running = list.filter((row) => row.state === "running").length;
    count.textContent = `${list.length} ${list.length === 1 ? "run" : "runs"}, ${running} running`;
    const head = h("tr", {}, h("th", {}, h("input", { type: "checkbox", "aria-label": "Compare all", checked: list.length > 0 && ticked.length === list.length,
      onchange: (e) => { list.slice(0, 24).forEach((row) => (e.target.checked ? chosen.add(row.id) : chosen.delete(row.id))); draw(); } })),
    COLUMNS.map(([key, text]) => h("th", { class: `${NUMBERS.has(key) ? "n" : ""} ${LESS.has(key) ? "less" : ""}`,
      "aria-sort": view.sort === key ? (view.up ? "ascending" : "descending") : "none" },
    h("button", { type: "button", onclick: () => { view.up = view.sort === key ? !view.up : key === "name"; view.sort = key; draw(); } },
      text, view.sort === key ? (view.up ? " ↑" : " ↓") : ""))));
    replace(table, list.length ? h("table", { class: "runs" }, h("thead", {}, head), h("tbody", {}, list.map((row) => line(row, different))))
      : h("p", { class: "empty" }, connect.ready ? "No runs here yet. A run appears as soon as fire_train writes its log, PREFIX_log.jsonl." : "Looking for runs …"));
    if (focus) [...table.querySelectorAll("[aria-label]")].find((n) => n.getAttribute("aria-label") === focus)?.focus();
    curves.show(ticked.map((row) => ({ ...row, title: title(row), colour: tints.get(row.id) })));
    hint.hidden = ticked.length > 0;
  }

  const hint = h("p", { class: "empty" }, "Tick runs to compare their curves.");
  replace(main, h("h1", {}, "Runs"), count, h("div", { class: "bar" }, filter), table, h("h2", {}, "Compare"), hint, curves.node);
  if (!chosen.size && rows.size) chosen.add([...rows.values()].sort((a, b) => b.began - a.began)[0].id);
  draw();
  const stop = watch(() => {
    if (!chosen.size && rows.size) chosen.add([...rows.values()].sort((a, b) => b.began - a.began)[0].id);
    draw();
  });
  return () => { stop(); curves.end(); };
}
