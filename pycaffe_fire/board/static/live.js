// The rows of all runs, kept up to date by server-sent events.

export const rows = new Map();
const listeners = new Set();

export function watch(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function connect() {
  const light = document.getElementById("link");
  const source = new EventSource("/api/live");
  const mark = (on) => {
    light.className = on ? "on" : "";
    light.title = on ? "live" : "not connected; trying again";
    light.setAttribute("aria-label", light.title);
  };
  source.onopen = () => mark(true);
  source.onerror = () => mark(false);
  source.onmessage = (message) => {
    const news = JSON.parse(message.data);
    for (const row of news.rows) rows.set(row.id, row);
    for (const id of news.gone) rows.delete(id);
    connect.ready = true;
    for (const listener of [...listeners]) listener(new Set([...news.rows.map((row) => row.id), ...news.gone]));
  };
}
