// Plots of a page: drag to zoom in, double-click to see everything, point to read values.
for (const figure of document.querySelectorAll("figure")) {
  const chart = figure.querySelector("svg.chart"), inner = figure.querySelector("svg.curves");
  const { domain, frame, log, by, lines } = JSON.parse(figure.querySelector("script").textContent);
  const [left, top, width, height] = frame, [x0, x1, y0, y1] = domain;
  const axes = figure.querySelector("g.axes"), everything = axes.innerHTML;
  const tip = figure.appendChild(document.createElement("div"));
  const make = (name, values) => {
    const node = document.createElementNS(chart.namespaceURI, name);
    for (const key in values) node.setAttribute(key, values[key]);
    return chart.appendChild(node);
  };
  const rule = make("line", { class: "rule", y1: top, y2: top + height });
  const box = make("rect", { class: "box" });
  tip.className = "tip";
  let view = frame, start = null;

  // Between pixels of the whole plot and numbers.
  const number = (x) => x0 + (x - left) / width * ((x1 - x0) || 1);
  const value = (y) => y0 + (top + height - y) / height * ((y1 - y0) || 1);
  const place = (x) => left + (x - x0) / ((x1 - x0) || 1) * width;
  // From the screen to the plot's pixels as they are seen, and from those to all of them.
  const seen = (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
    return [Math.min(Math.max(at.x, left), left + width), Math.min(Math.max(at.y, top), top + height)];
  };
  const whole = ([x, y]) => [view[0] + (x - left) / width * view[2], view[1] + (y - top) / height * view[3]];

  const ticks = (low, high) => {
    const rough = (high - low) / 5, size = 10 ** Math.floor(Math.log10(rough));
    const step = size * [1, 2, 2.5, 5, 10].find((m) => size * m >= rough * 0.999);
    const found = [];
    for (let i = Math.ceil(low / step); i * step <= high; i++) found.push(i * step);
    return found;
  };
  const text = (v) => String(Number(v.toPrecision(5)));

  function show(next) {
    view = next;
    inner.setAttribute("viewBox", view.join(" "));
    figure.classList.toggle("zoomed", view !== frame);
    if (view === frame) { axes.innerHTML = everything; return; }
    const [vx, vy, vw, vh] = view;
    let made = "";
    for (const t of ticks(number(vx), number(vx + vw))) {
      const at = left + (place(t) - vx) / vw * width;
      made += `<line class="grid" x1="${at}" x2="${at}" y1="${top}" y2="${top + height}"/>` +
        `<text x="${at}" y="${top + height + 16}" text-anchor="middle">${text(t)}</text>`;
    }
    for (const t of ticks(value(vy + vh), value(vy))) {
      const y = top + height - (t - y0) / ((y1 - y0) || 1) * height, at = top + (y - vy) / vh * height;
      made += `<line class="grid" x1="${left}" x2="${left + width}" y1="${at}" y2="${at}"/>` +
        `<text x="${left - 8}" y="${at + 4}" text-anchor="end">${text(log ? 10 ** t : t)}</text>`;
    }
    axes.innerHTML = made;
  }

  function nearest(points, x) {
    let low = 0, high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < x) low = middle; else high = middle;
    }
    return Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? points[low] : points[high];
  }

  function read(event) {
    const at = seen(event), x = number(whole(at)[0]);
    tip.replaceChildren();
    let first = null;
    for (const line of lines) {
      if (!line.points.length) continue;
      const [px, py] = nearest(line.points, x), row = tip.appendChild(document.createElement("div"));
      if (first === null || Math.abs(px - x) < Math.abs(first - x)) first = px;
      row.append(Object.assign(document.createElement("i"), { style: `background:${line.colour}` }),
        `${line.label} ${text(py)}` + (lines.length > 1 ? ` at ${text(px)}` : ""));
    }
    if (first === null) return;
    const shown = left + (place(first) - view[0]) / view[2] * width;
    rule.setAttribute("x1", shown);
    rule.setAttribute("x2", shown);
    tip.prepend(Object.assign(document.createElement("b"), { textContent: `${by} ${text(first)}` }));
    const area = figure.getBoundingClientRect();
    tip.style.top = `${event.clientY - area.top + 14}px`;
    const right = event.clientX - area.left > area.width / 2;
    tip.style.left = right ? "auto" : `${event.clientX - area.left + 14}px`;
    tip.style.right = right ? `${area.right - event.clientX + 14}px` : "auto";
    figure.classList.add("reading");
  }

  const corners = (a, b) => [Math.min(a[0], b[0]), Math.min(a[1], b[1]), Math.abs(a[0] - b[0]), Math.abs(a[1] - b[1])];
  chart.addEventListener("pointerdown", (event) => {
    start = seen(event);
    chart.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  chart.addEventListener("pointermove", (event) => {
    read(event);
    if (!start) return;
    const [x, y, w, h] = corners(start, seen(event));
    for (const [key, v] of Object.entries({ x, y, width: w, height: h })) box.setAttribute(key, v);
    figure.classList.add("choosing");
  });
  chart.addEventListener("pointerup", (event) => {
    figure.classList.remove("choosing");
    if (!start) return;
    const [a, b] = [whole(start), whole(seen(event))], [, , w, h] = corners(start, seen(event));
    start = null;
    // A narrow choice is one of the other axis alone.
    const next = corners(a, b);
    if (w < 8 && h < 8) return;
    if (w < 8) { next[0] = view[0]; next[2] = view[2]; }
    if (h < 8) { next[1] = view[1]; next[3] = view[3]; }
    show(next);
  });
  chart.addEventListener("pointerleave", () => figure.classList.remove("reading"));
  chart.addEventListener("dblclick", () => show(frame));
}
