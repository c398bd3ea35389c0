// Elements, texts and requests. Names from logs only ever become text nodes or attribute values.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") node.setAttribute("class", value);
    else if (key === "style") Object.assign(node.style, value);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key in node && typeof value !== "string" && node.namespaceURI !== SVG) node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(9).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const replace = (node, ...children) => { node.replaceChildren(...children.flat(9).filter(Boolean)); return node; };

let hiding = 0;
export function toast(text) {
  const node = document.getElementById("toast");
  node.textContent = text;
  node.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => { node.hidden = true; }, 7000);
}

export const query = (values) => {
  const made = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (Array.isArray(value)) value.forEach((each) => made.append(key, each));
    else if (value !== null && value !== undefined && value !== "") made.append(key, value);
  }
  return made.toString();
};

export async function ask(path, values = {}, options = {}) {
  const answer = await fetch(`${path}?${query(values)}`, options);
  if (!answer.ok) {
    let text = `${answer.status}`;
    try { text = (await answer.json()).error; } catch { text = await answer.text().catch(() => text); }
    throw new Error(text);
  }
  return answer.json();
}

// Work on the server that takes a while: start it, then look until it is done.
export async function job(path, values, progress, alive = () => true) {
  let state = await ask(path, values, { method: "POST" });
  while (state.state === "running" && alive()) {
    progress(state.done, state.total);
    await new Promise((wake) => setTimeout(wake, 250));
    state = await ask(path, values);
  }
  if (state.state === "failed") throw new Error(state.error);
  return state.result;
}

const made = [];
export function fromBase64(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const url = URL.createObjectURL(new Blob([bytes], { type: "image/png" }));
  made.push(url);
  return url;
}
export const forget = () => made.splice(0).forEach((url) => URL.revokeObjectURL(url));

// Numbers.

export const number = (value, digits = 4) =>
  value === null || value === undefined || Number.isNaN(value) ? "–"
    : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(digits));
export const percent = (value) => `${(100 * value).toFixed(1)} %`;
const scaled = (value, steps, names) => {
  let i = 0;
  while (Math.abs(value) >= steps && i < names.length - 1) { value /= steps; i += 1; }
  return `${+value.toPrecision(3)} ${names[i]}`;
};
export const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
export const flops = (value) => scaled(value, 1000, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"]);
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const t = Math.round(seconds), hours = Math.floor(t / 3600), minutes = Math.floor(t / 60) % 60;
  if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  if (hours) return `${hours} h ${String(minutes).padStart(2, "0")} min`;
  return minutes ? `${minutes} min ${String(t % 60).padStart(2, "0")} s` : `${t} s`;
}
export const clock = (seconds) => new Date(1000 * seconds).toLocaleString();
export const shape = (sizes) => (sizes && sizes.length ? sizes.join(" × ") : "one number");

// Parts that several views use.

export const tile = (value, name) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, name));
export const segments = (label, options, chosen, choose) => {
  const box = h("div", { class: "segments", role: "group", "aria-label": label });
  const draw = (now) => replace(box, options.map(([key, text, off]) => h("button", {
    type: "button", "aria-pressed": String(key === now), disabled: Boolean(off), "data-key": key,
    onclick: () => { draw(key); choose(key); },
  }, text)));
  draw(chosen);
  return box;
};
export const choice = (label, options, chosen, choose) => h("label", {}, label,
  h("select", { onchange: (event) => choose(event.target.value) },
    options.map(([value, text]) => h("option", { value, selected: value === chosen }, text))));
export const hbar = (name, share, text, second = 0) => h("div", { class: "hbar" },
  h("span", { title: name }, name),
  h("span", { class: "track" }, h("i", { style: { width: `${100 * share}%` } }),
    second ? h("i", { class: "two", style: { width: `${100 * second}%` } }) : null),
  h("output", {}, text));
export const meter = (done, total) => h("progress", total ? { max: String(total), value: String(done) } : {});
