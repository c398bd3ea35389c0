// Which view is shown: the part of the address after the hash decides.
import { forget, h, replace } from "./dom.js";
import { connect } from "./live.js";
import { showRuns } from "./runs.js";
import { showRun } from "./run.js";
import { showNet } from "./net.js";
import { showData } from "./data.js";
import { showResults } from "./results.js";
import { showTry } from "./tryit.js";

const VIEWS = { "": ["Run", showRun], net: ["Net", showNet], data: ["Data", showData], results: ["Results", showResults], try: ["Try it", showTry] };
let leave = () => {};

function show() {
  const main = document.getElementById("main"), [, kind, id, view = ""] = location.hash.split("/");
  leave();
  forget();
  const tabs = [["#/", "Runs", kind !== "run"]];
  if (kind === "run" && VIEWS[view]) {
    for (const [key, [text]] of Object.entries(VIEWS)) tabs.push([`#/run/${id}${key && `/${key}`}`, text, key === view]);
  }
  replace(document.getElementById("tabs"), tabs.map(([href, text, on]) => h("a", { href, "aria-current": on ? "page" : null }, text)));
  document.title = kind === "run" ? `${VIEWS[view]?.[0] ?? "Run"} – fire_board` : "fire_board";
  replace(main);
  leave = (kind === "run" && VIEWS[view] ? VIEWS[view][1](main, id) : showRuns(main)) || (() => {});
  window.scrollTo(0, 0);
}

function theme(next) {
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("fire_board.theme", next); } catch { /* a browser that keeps nothing */ }
}

// The token has become a cookie: it need not stand in the address, nor in the history.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);
let kept = null;
try { kept = localStorage.getItem("fire_board.theme"); } catch { /* as above */ }
theme(kept ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => { theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); show(); });
window.addEventListener("hashchange", () => { show(); document.getElementById("main").focus({ preventScroll: true }); });
connect();
show();
