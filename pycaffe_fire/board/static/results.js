// What a snapshot is worth on the test data.
import { ask, fromBase64, h, job, meter, number, percent, replace, tile, toast } from "./dom.js";
import { snapshotChoice } from "./curves.js";
import { details } from "./run.js";
import { title } from "./runs.js";

const MOST_CELLS = 40; // classes of a matrix that is shown with all its numbers

function matrix(found, name) {
  const n = found.matrix.length;
  if (n > MOST_CELLS) return confusions(found, name);
  const cell = (count, i, j, total) => {
    const share = total ? count / total : 0, tint = i === j ? "var(--accent)" : "var(--bad)";
    return h("td", { title: `${name(i)} taken for ${name(j)}: ${count}`, "data-cell": `${i},${j}`, style: { color: i === j && share > 0.3 ? "var(--on-accent)" : "", background: count ? `color-mix(in srgb, ${tint} ${Math.round(12 + 78 * Math.sqrt(share))}%, transparent)` : "var(--hover)" } }, count || "");
  };
  return h("div", { class: "scroll" }, h("table", { class: "matrix", id: "matrix" }, h("caption", { class: "soft" }, "rows: what it is; columns: what the net says"),
    h("thead", {}, h("tr", {}, h("th"), found.matrix.map((_, j) => h("th", { title: name(j) }, j)))),
    h("tbody", {}, found.matrix.map((line, i) => h("tr", {}, h("th", { title: name(i) }, name(i)), line.map((count, j) => cell(count, i, j, found.classes[i].count)))))));
}

function confusions(found, name) {
  const pairs = found.matrix.flatMap((line, i) => line.map((count, j) => [count, i, j])).filter(([count, i, j]) => count && i !== j).sort((a, b) => b[0] - a[0]).slice(0, 60);
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "is"), h("th", {}, "taken for"), h("th", { class: "n" }, "times"))),
    h("tbody", {}, pairs.map(([count, i, j]) => h("tr", {}, h("td", {}, name(i)), h("td", {}, name(j)), h("td", { class: "n" }, count))))));
}

function perClass(found, name) {
  const lines = found.classes.map((c, i) => ({ ...c, i, share: c.count ? c.right / c.count : 0 })).filter((c) => c.count).sort((a, b) => a.share - b.share);
  const track = (share) => h("span", { class: "meter" }, h("i", { style: { width: `${100 * share}%` } }));
  return h("div", { class: "scroll", style: { maxHeight: "460px", overflow: "auto" } }, h("table", { id: "classes" }, h("thead", {}, h("tr", {}, h("th", {}, "class"), h("th", { class: "n" }, "images"), h("th", { class: "n" }, "accuracy"), h("th", {}), h("th", { class: "n" }, "top-5"), h("th", { class: "n" }, "precision"))),
    h("tbody", {}, lines.map((c) => h("tr", {}, h("td", {}, name(c.i)), h("td", { class: "n" }, c.count), h("td", { class: "n" }, percent(c.share)), h("td", {}, track(c.share)),
      h("td", { class: "n" }, percent(c.top5 / c.count)), h("td", { class: "n" }, c.predicted ? percent(c.right / c.predicted) : "–"))))));
}

export function showResults(main, id) {
  const controls = h("div", { class: "bar" }), body = h("div", {});
  let snapshot = "", labels = [], alive = true;
  replace(main, h("h1", {}, "Results"), controls, body);
  const name = (i) => (labels[i] ? `${i}: ${labels[i]}` : String(i));

  function draw(found) {
    replace(body, h("div", { class: "tiles" }, tile(percent(found.accuracy), "accuracy"), tile(percent(found.top5), "top-5 accuracy"), tile(number(found.samples, 9), "samples"), tile(String(found.matrix.length), "classes")),
      h("div", { class: "grid2" }, h("div", { class: "card" }, h("h3", {}, "Confusion matrix"), matrix(found, name)), h("div", { class: "card" }, h("h3", {}, "Per class, the worst first"), perClass(found, name))),
      h("h2", {}, "Hardest images: wrong, and most sure of it"),
      found.hardest.length ? h("div", { class: "thumbs", id: "hardest" }, found.hardest.map((each) => h("figure", {}, h("img", { src: fromBase64(each.image), alt: `sample ${each.sample}` }),
        h("figcaption", {}, h("b", {}, name(each.guess)), ` ${percent(each.confidence)}`, h("br"), `is ${name(each.label)}`)))) : h("p", { class: "soft" }, "None: everything is right."));
  }

  async function start() {
    const bar = h("div", {}, meter(0, 0));
    replace(body, h("div", { class: "card" }, h("h3", {}, "Testing"), bar, h("button", { type: "button", onclick: async () => { alive = false; await ask(`/api/runs/${id}/results`, { snapshot }, { method: "DELETE" }); alive = true; begin(); } }, "Cancel")));
    try {
      const found = await job(`/api/runs/${id}/results`, { snapshot }, (done, total) => replace(bar, meter(done, total), h("small", {}, total ? `${number(done, 9)} of ${number(total, 9)} samples` : "starting")), () => alive);
      if (alive && found) draw(found);
    } catch (error) { replace(body, h("p", { class: "card bad" }, error.message)); }
  }

  async function begin() {
    const known = await ask(`/api/runs/${id}/results`, { snapshot });
    if (known.state === "done") draw(known.result);
    else if (known.state === "running") start();
    else replace(body, h("div", { class: "card empty" }, h("p", {}, "Run the snapshot over the whole test data, in a process of its own."), h("button", { type: "button", class: "main", id: "start", onclick: start }, "Test this snapshot")));
  }

  details(id).then((found) => {
    replace(main.querySelector("h1"), title(found.row));
    labels = found.labels;
    if (!found.snapshots.length) { replace(body, h("p", { class: "empty" }, "The run has saved no weights yet.")); return null; }
    snapshot = found.snapshots[0].name;
    replace(controls, snapshotChoice(found.snapshots, snapshot, (value) => { snapshot = value; begin(); }));
    return begin();
  }).catch((error) => toast(error.message));
  return () => { alive = false; };
}
