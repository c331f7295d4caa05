"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const DRAWN = new Set(["svg", "path", "line", "text", "rect"]);

function element(name, attributes = {}, ...children) {
  const node = DRAWN.has(name) ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function options(select, names, shown = {}) {
  select.replaceChildren(...names.map((name) => element("option", { value: name }, shown[name] ?? name)));
  select.parentElement.hidden = names.length < 2;
}

// As wide as there is room, so that letters are of one size on every screen.
function sheet(host, height, label) {
  const width = Math.max(260, Math.min(680, host.clientWidth || 680));
  return [element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }), width];
}

// Cumulative Acc_H of every row on one stream.
function drawCurves(host, runs, view) {
  const height = 320, left = 34, right = 12, top = 12, bottom = 34;
  const [svg, width] = sheet(host, height, "cumulative Acc_H over the batches");
  const values = runs.flatMap((run) => run.curve.slice(1)).filter((value) => value !== null).map((value) => 100 * value);
  const low = Math.max(0, Math.floor((Math.min(...values, 100) - 4) / 10) * 10);
  const high = Math.min(100, Math.ceil((Math.max(...values, low + 10) + 1) / 10) * 10);
  const longest = Math.max(...runs.map((run) => run.curve.length), 2);
  const x = (batch) => left + (batch / (longest - 1)) * (width - left - right);
  const y = (value) => height - bottom - ((value - low) / (high - low)) * (height - top - bottom);
  for (let tick = low; tick <= high; tick += 10) {
    svg.append(element("line", { class: "axis", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }));
    svg.append(element("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, String(tick)));
  }
  svg.append(element("text", { x: left, y: height - 12, "text-anchor": "middle" }, "1"));
  svg.append(element("text", { x: (left + width - right) / 2, y: height - 12, "text-anchor": "middle" }, "batch"));
  svg.append(element("text", { x: width - right, y: height - 12, "text-anchor": "end" }, String(longest)));
  const legend = element("div", { class: "legend" });
  for (const run of runs) {
    const points = run.curve.map((value, batch) => [batch, value]).filter(([, value]) => value !== null);
    const path = points.map(([batch, value]) => `${x(batch).toFixed(1)},${y(Math.min(high, Math.max(low, 100 * value))).toFixed(1)}`);
    const color = view.colors[run.row], mark = element("i"), last = run.curve[run.curve.length - 1];
    const wide = run.row === view.highlight ? 3 : 1.8;
    if (path.length) svg.append(element("path", { d: `M${path.join("L")}`, fill: "none", stroke: color, "stroke-width": wide }));
    mark.style.backgroundColor = color;
    legend.append(element("span", {}, mark, `${run.row} ${last === null ? "—" : (100 * last).toFixed(1)}`));
  }
  host.replaceChildren(svg, legend);
}

// Scores of one batch and of those shortly before it, and the threshold.
function drawScores(host, run, batch) {
  const height = 280, left = 12, right = 12, top = 12, bottom = 34, memory = 2;
  const [svg, width] = sheet(host, height, "scores of known and unknown samples");
  const edges = run.scores.edges, first = Math.max(0, batch - memory);
  const sum = (kind) => edges.slice(1).map((_, bin) =>
    run.scores[kind].slice(first, batch + 1).reduce((total, counts) => total + counts[bin], 0));
  const known = sum("known"), unknown = sum("unknown");
  const most = Math.max(...known, ...unknown, 1), span = edges[edges.length - 1] - edges[0];
  const x = (score) => left + ((score - edges[0]) / span) * (width - left - right);
  for (const [counts, kind] of [[known, "known"], [unknown, "unknown"]]) {
    counts.forEach((count, bin) => {
      const tall = (count / most) * (height - top - bottom);
      svg.append(element("rect", { x: x(edges[bin]), width: Math.max(0.5, x(edges[bin + 1]) - x(edges[bin]) - 0.5),
        y: height - bottom - tall, height: tall, class: kind, "fill-opacity": 0.6 }));
    });
  }
  const threshold = run.threshold[batch];
  if (threshold !== null) {
    const place = x(Math.min(edges[edges.length - 1], Math.max(edges[0], threshold))), late = place > width - 80;
    svg.append(element("line", { class: "threshold", x1: place, x2: place, y1: top, y2: height - bottom }));
    svg.append(element("text", { x: place + (late ? -5 : 5), y: top + 12, "text-anchor": late ? "end" : "start" },
      `τ = ${threshold.toFixed(2)}`));
  }
  for (let tick = 0; tick <= 5; tick += 1) {
    const score = edges[0] + (tick / 5) * span;
    const anchor = tick === 0 ? "start" : tick === 5 ? "end" : "middle";
    svg.append(element("text", { x: x(score), y: height - 14, "text-anchor": anchor }, score.toFixed(2)));
  }
  host.replaceChildren(svg);
}

function viewer(section) {
  const view = data.views[section.dataset.view];
  const [column, corruption, row] = ["column", "corruption", "row"].map((name) => section.querySelector(`select[name=${name}]`));
  const slider = section.querySelector("input[type=range]"), told = section.querySelector("output");
  const curves = section.querySelector(".curves"), scores = section.querySelector(".scores");
  const unique = (values) => [...new Set(values)];
  const here = () => view.runs.filter((run) => run.column === column.value && run.corruption === corruption.value);
  let touched = false;
  const scrub = () => {
    const run = here().find((one) => one.row === row.value && one.scores);
    slider.hidden = told.hidden = !run;
    if (!run) { scores.replaceChildren(element("p", { class: "muted" }, "No scores are kept of this run.")); return; }
    slider.max = String(run.threshold.length - 1);
    if (!touched) slider.value = slider.max;
    const batch = Math.min(Number(slider.value), run.threshold.length - 1);
    told.textContent = `batch ${batch + 1} of ${run.threshold.length}`;
    drawScores(scores, run, batch);
  };
  const show = () => {
    drawCurves(curves, here(), view);
    const rows = unique(here().map((run) => run.row)), kept = row.value;
    options(row, rows);
    row.value = [kept, view.highlight].find((name) => rows.includes(name)) ?? rows[rows.length - 1];
    scrub();
  };
  options(column, unique(view.runs.map((run) => run.column)), view.headings);
  options(corruption, unique(view.runs.map((run) => run.corruption)));
  corruption.value = (view.runs.find((run) => run.scores) ?? view.runs[0]).corruption;
  column.addEventListener("change", show);
  corruption.addEventListener("change", show);
  row.addEventListener("change", scrub);
  slider.addEventListener("input", () => { touched = true; scrub(); });
  show();
  return show;
}

const redraw = [...document.querySelectorAll("section[data-view]")].map(viewer);
let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return;
  width = window.innerWidth;
  redraw.forEach((show) => show());
});
document.querySelectorAll(".bar a").forEach((link) => link.addEventListener("click", () => {
  document.querySelector(".bar").open = false;
}));
