// Trying a snapshot on an image: what it says, what its layers see, where it looks.
import { ask, choice, fromBase64, h, hbar, job, meter, percent, query, replace, s, shape, toast } from "./dom.js";
import { snapshotChoice } from "./curves.js";
import { details } from "./run.js";
import { title } from "./runs.js";

export function showTry(main, id) {
  const controls = h("div", { class: "bar" }), body = h("div", {});
  let snapshot = "", labels = [], image = null, blob = "", turn = 0;
  const name = (i) => (labels[i] ? `${i}: ${labels[i]}` : String(i));
  const input = h("input", { type: "file", accept: "image/*", id: "file", hidden: true, onchange: () => take(input.files[0]) });
  const drop = h("div", { class: "drop", id: "drop",
    ondragover: (e) => { e.preventDefault(); drop.classList.add("over"); }, ondragleave: () => drop.classList.remove("over"),
    ondrop: (e) => { e.preventDefault(); drop.classList.remove("over"); take(e.dataTransfer.files[0]); } },
  h("p", {}, "Drop an image here, paste one, or "), h("button", { type: "button", class: "main", onclick: () => input.click() }, "choose a file"), input);
  const paste = (e) => { const file = [...(e.clipboardData?.files ?? [])][0]; if (file) take(file); };
  document.addEventListener("paste", paste);
  replace(main, h("h1", {}, "Try it"), controls, drop, body);

  async function take(file) {
    if (!file) return;
    image = file;
    turn += 1;
    replace(body, h("p", { class: "soft", role: "status" }, "Running the net …"));
    try { draw(await ask(`/api/runs/${id}/try`, { snapshot }, { method: "POST", body: file })); } catch (error) { replace(body, h("p", { class: "card bad", id: "refused" }, error.message)); }
  }

  function over(found) {
    if (found.kind === "detection") {
      return s("svg", { class: "over", viewBox: "0 0 1 1", preserveAspectRatio: "none" }, found.boxes.filter((b) => b[1] > 0.3).map(([, , x, y, x2, y2]) => s("rect", { x, y, width: Math.max(0, x2 - x), height: Math.max(0, y2 - y) })));
    }
    return found.kind === "segmentation" ? h("img", { class: "over", id: "mask", alt: "mask", src: fromBase64(found.mask) }) : null;
  }

  function answers(found) {
    if (found.kind === "detection") return found.boxes.slice(0, 20).map(([label, sure]) => hbar(name(label), sure, percent(sure)));
    if (found.kind === "segmentation") return found.shares.map(([label, share]) => hbar(name(label), share, percent(share)));
    return found.top.map(([label, score]) => hbar(name(label), Math.max(0, Math.min(1, score)), percent(score)));
  }

  function draw(found) {
    const seen = h("span", { class: "pair" }, h("img", { alt: "the image as the net sees it", src: fromBase64(found.image) }), over(found));
    const activations = h("img", { class: "wide", id: "activations", alt: "activations" }), layer = h("div", {});
    const show = (each) => { blob = each; activations.src = `/api/runs/${id}/blob?${query({ name: blob, snapshot, turn: String(turn) })}`; };
    const blobs = found.blobs.map(([each, sizes]) => [each, `${each} (${shape(sizes.slice(1))})`]);
    if (!found.blobs.some(([each]) => each === blob)) [blob] = found.blobs[1] ?? found.blobs[0];
    replace(body, h("div", { class: "split", style: { marginTop: "14px" } },
      h("div", { class: "card" }, h("h3", { style: { marginTop: 0 } }, "What the net sees"), seen, h("p", { class: "sub" }, `the image has ${found.size[0]} × ${found.size[1]} pixels`),
        found.kind === "classification" ? h("div", { class: "bar" }, h("button", { type: "button", id: "occlude", onclick: () => occlude(found, seen, layer) }, "Where does it look?")) : null, layer),
      h("div", {}, h("div", { class: "card", id: "answer" }, h("h3", { style: { marginTop: 0 } }, { classification: "Top five", detection: "Boxes", segmentation: "Classes by area" }[found.kind]), answers(found)),
        h("div", { class: "card", style: { marginTop: "14px" } }, h("h3", { style: { marginTop: 0 } }, "Activations"), choice("Blob", blobs, blob, show), h("p"), activations))));
    show(blob);
  }

  async function occlude(found, seen, place) {
    const [target] = found.top[0], mine = turn;
    try {
      const map = await job(`/api/runs/${id}/occlusion`, { snapshot, target: String(target), image: String(performance.timeOrigin + turn) }, (done, total) => replace(place, meter(done, total)), () => turn === mine);
      if (turn !== mine || !map) return;
      seen.querySelector(".over")?.remove();
      seen.append(h("img", { class: "over", id: "occlusion", alt: "occlusion map", src: fromBase64(map.map) }));
      replace(place, h("p", { class: "sub" }, `Bright is where a covering square lowers the score of ${name(target)} most: by up to ${percent(map.drop)} of ${percent(map.score)}.`));
    } catch (error) { toast(error.message); }
  }

  details(id).then((found) => {
    replace(main.querySelector("h1"), title(found.row));
    labels = found.labels;
    if (!found.snapshots.length) { replace(body, h("p", { class: "empty" }, "The run has saved no weights yet.")); drop.hidden = true; return; }
    snapshot = found.snapshots[0].name;
    replace(controls, snapshotChoice(found.snapshots, snapshot, (value) => { snapshot = value; take(image); }));
  }).catch((error) => toast(error.message));
  return () => { turn += 1; document.removeEventListener("paste", paste); };
}
