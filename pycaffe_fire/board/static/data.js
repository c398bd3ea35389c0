// The data of a run, record by record: as stored, or as the net sees it.
import { ask, choice, h, hbar, job, meter, number, query, replace, s, segments, shape, toast } from "./dom.js";
import { details } from "./run.js";
import { title } from "./runs.js";

const PAGE = 24;

export function showData(main, id) {
  const state = { net: "", layer: "", label: "", first: 0, seen: "1", draw: 0 };
  const controls = h("div", { class: "bar" }), about = h("p", { class: "sub" }), grid = h("div", { class: "thumbs" }), side = h("div", {}), pages = h("div", { class: "bar" });
  let labels = [], alive = true;
  replace(main, h("h1", {}, "Data"), about, controls, h("div", { class: "split" }, h("div", {}, grid, pages), side));
  const name = (label) => (labels[label] ? `${label}: ${labels[label]}` : String(label));
  const where = () => ({ net: state.net, layer: state.layer });

  const titleOf = (r) => (r.boxes ? [...new Set(r.boxes.map(([label]) => name(label)))].join(", ") || "nothing" : r.label === null ? "–" : name(r.label));
  const shownAs = () => ({ seen: state.seen, draw: String(state.draw) });

  // An image with the boxes of its objects, which are given in parts of its sides.
  function picture(record) {
    const group = s("g", {}, (record.boxes || []).map(([label, x, y, x2, y2]) => s("rect", { x, y, width: Math.max(0, x2 - x), height: Math.max(0, y2 - y) }, s("title", {}, name(label)))));
    const over = s("svg", { class: "over" }, group);
    const fit = (event) => {
      const { naturalWidth: wide, naturalHeight: high } = event.target;
      over.setAttribute("viewBox", `0 0 ${wide} ${high}`);
      group.setAttribute("transform", `scale(${wide} ${high})`);
    };
    const image = h("img", { loading: "lazy", alt: `record ${record.record}`, onload: fit, src: `/api/runs/${id}/record?${query({ ...where(), record: String(record.record), ...shownAs() })}` });
    return h("div", { class: "boxed" }, image, record.boxes ? over : null);
  }

  async function page() {
    let found;
    try { found = await ask(`/api/runs/${id}/records`, { ...where(), label: state.label, first: state.first, ...shownAs() }); } catch (error) { replace(grid, h("p", { class: "bad" }, error.message)); return; }
    if (!alive) return;
    replace(grid, found.records.map((r) => h("figure", {}, r.error ? h("figcaption", { class: "bad" }, r.error)
      : picture(r),
    h("figcaption", {}, h("b", {}, titleOf(r)), h("br"), r.name))));
    const last = Math.min(state.first + PAGE, found.total);
    const turn = (by, text, off) => h("button", { type: "button", disabled: off, onclick: () => { state.first += by; page(); } }, text);
    replace(pages, turn(-PAGE, "← Before", state.first === 0), h("span", { class: "soft" }, `${found.total ? state.first + 1 : 0} to ${last} of ${number(found.total, 9)}`), turn(PAGE, "Next →", last >= found.total));
  }

  async function survey() {
    const bar = h("div", {}, meter(0, 0));
    replace(side, h("div", { class: "card" }, h("h3", {}, "Reading all records"), bar));
    let found;
    try { found = await job(`/api/runs/${id}/survey`, where(), (done, total) => replace(bar, meter(done, total), h("small", {}, `${number(done, 9)} of ${number(total, 9)}`)), () => alive); } catch (error) { replace(side, h("p", { class: "bad card" }, error.message)); return; }
    if (!found || !alive) return;
    const most = Math.max(1, ...found.counts.map(([, count]) => count));
    replace(side, h("div", { class: "card", id: "counts" }, h("h3", {}, `${found.counts.length} classes, ${number(found.records, 9)} records`),
      h("div", { style: { maxHeight: "420px", overflow: "auto" } }, found.counts.slice(0, 1000).map(([label, count]) => hbar(name(label), count / most, number(count, 9))))),
    h("div", { class: "card", id: "problems", style: { marginTop: "14px" } }, h("h3", {}, found.bad ? `${number(found.bad)} records cannot be used` : "All records can be used"),
      h("ul", { class: "list" }, found.problems.map(([record, text]) => h("li", {}, h("b", {}, `record ${record} `), text)))));
    drawControls(found.counts);
  }

  function drawControls(counts) {
    const sources = Object.entries(state.data).flatMap(([net, layers]) => layers.map((each) => [`${net}\n${each.layer}`, `${net}: ${each.layer} (${each.source})`]));
    replace(controls,
      choice("Source", sources, `${state.net}\n${state.layer}`, (value) => { [state.net, state.layer] = value.split("\n"); open(); }),
      segments("Shown", [["0", "As stored"], ["1", "As the net sees it"]], state.seen, (value) => { state.seen = value; page(); }),
      h("button", { type: "button", title: "another crop and mirror", onclick: () => { state.draw += 1; page(); } }, "Another draw"),
      counts ? choice("Label", [["", "all"], ...counts.map(([label]) => [String(label), name(label)])], state.label, (value) => { state.label = value; state.first = 0; page(); })
        : h("button", { type: "button", id: "survey", onclick: survey }, "Count classes, find bad records"));
  }

  async function open() {
    Object.assign(state, { label: "", first: 0, draw: 0 });
    drawControls(null);
    replace(side);
    replace(grid, h("p", { class: "soft" }, "Opening …"));
    try {
      const found = await ask(`/api/runs/${id}/data`, where());
      about.textContent = `${number(found.records, 9)} records; the net sees ${shape(found.shape)}${found.stored ? `, stored are ${shape(found.stored)}` : ""}`;
      if (alive) await page();
    } catch (error) { replace(grid, h("p", { class: "bad" }, error.message)); }
  }

  details(id).then((found) => {
    replace(main.querySelector("h1"), title(found.row));
    labels = found.labels;
    state.data = found.data;
    const first = Object.entries(found.data).find(([, layers]) => layers.length);
    if (!first) { replace(grid, h("p", { class: "empty" }, "The run's nets read no data.")); return null; }
    [state.net, state.layer] = [first[0], first[1][0].layer];
    return open();
  }).catch((error) => toast(error.message));
  return () => { alive = false; };
}
