"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const colors = data.colors;

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "rect", "g", "circle"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function options(select, names) {
  select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
}

// A method's own color; rows that are all of one method are told apart by others.
const others = ["#d6432f", "#3f7fbf", "#5aa469", "#e0a43b", "#b07cc6", "#45b3b3", "#8a5a44", "#d16ba5", "#7f868e", "#a3b846"];

function color(run, runs) {
  const methods = new Set(runs.map((one) => one.method));
  if (methods.size < runs.length) return others[runs.indexOf(run) % others.length];
  return colors[run.method] || "#8a9099";
}

// Cumulative Acc_H of every method on one stream.
function drawCurves(host, runs) {
  const width = 680, height = 320, left = 44, right = 12, top = 12, bottom = 34;
  const values = runs.flatMap((run) => run.curve.slice(1)).filter((value) => value !== null).map((value) => 100 * value);
  const low = Math.max(0, Math.floor((Math.min(...values, 100) - 4) / 10) * 10);
  const high = Math.min(100, Math.ceil((Math.max(...values, low + 10) + 1) / 10) * 10);
  const longest = Math.max(...runs.map((run) => run.curve.length), 2);
  const x = (batch) => left + (batch / (longest - 1)) * (width - left - right);
  const y = (value) => height - bottom - ((value - low) / (high - low)) * (height - top - bottom);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  for (let tick = low; tick <= high; tick += 10) {
    svg.append(element("line", { class: "axis", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }));
    svg.append(element("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, String(tick)));
  }
  svg.append(element("text", { x: width / 2, y: height - 8, "text-anchor": "middle" }, "batch"));
  for (const run of runs) {
    let path = "";
    run.curve.forEach((value, batch) => {
      if (value !== null) path += `${path ? "L" : "M"}${x(batch).toFixed(1)},${y(Math.max(low, 100 * value)).toFixed(1)}`;
    });
    const stroke = run.method === "owttt" ? 3 : 1.8;
    svg.append(element("path", { d: path, fill: "none", stroke: color(run, runs), "stroke-width": stroke }));
  }
  const legend = element("div", { class: "legend" });
  for (const run of runs) {
    const last = run.curve[run.curve.length - 1];
    const mark = element("i", { style: `background:${color(run, runs)}` });
    legend.append(element("span", {}, mark, `${run.row} ${last === null ? "—" : (100 * last).toFixed(1)}`));
  }
  host.replaceChildren(svg, legend);
}

// Scores of one batch and of those shortly before it, and the threshold.
function drawScores(host, run, batch) {
  const width = 680, height = 280, left = 12, right = 12, top = 12, bottom = 34, memory = 2;
  const edges = run.scores.edges, first = Math.max(0, batch - memory);
  const sum = (kind) => edges.slice(1).map((_, bin) =>
    run.scores[kind].slice(first, batch + 1).reduce((total, counts) => total + counts[bin], 0));
  const known = sum("known"), unknown = sum("unknown");
  const most = Math.max(...known, ...unknown, 1), span = edges[edges.length - 1] - edges[0];
  const x = (score) => left + ((score - edges[0]) / span) * (width - left - right);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  for (const [counts, fill] of [[known, "var(--known)"], [unknown, "var(--unknown)"]]) {
    counts.forEach((count, bin) => {
      const tall = (count / most) * (height - top - bottom);
      svg.append(element("rect", { x: x(edges[bin]), width: Math.max(0.5, x(edges[bin + 1]) - x(edges[bin]) - 0.5),
        y: height - bottom - tall, height: tall, fill, "fill-opacity": 0.65 }));
    });
  }
  const threshold = run.threshold[batch];
  if (threshold !== null) {
    svg.append(element("line", { x1: x(threshold), x2: x(threshold), y1: top, y2: height - bottom,
      stroke: "var(--ink)", "stroke-dasharray": "5 4", "stroke-width": 1.5 }));
    svg.append(element("text", { x: x(threshold) + 5, y: top + 12 }, `τ = ${threshold.toFixed(2)}`));
  }
  for (let tick = 0; tick <= 5; tick += 1) {
    const score = edges[0] + (tick / 5) * span;
    const anchor = tick === 0 ? "start" : tick === 5 ? "end" : "middle";
    svg.append(element("text", { x: x(score), y: height - 14, "text-anchor": anchor }, score.toFixed(2)));
  }
  host.replaceChildren(svg);
}

function viewer(section) {
  const table = data.tables[Number(section.dataset.table)];
  const column = section.querySelector("select[name=column]"), look = section.querySelector("select[name=look]");
  const method = section.querySelector("select[name=row]"), slider = section.querySelector("input[type=range]");
  const told = section.querySelector("output"), curves = section.querySelector(".curves");
  const scores = section.querySelector(".scores");
  const here = () => table.runs.filter((run) => run.column === column.value && run.look === look.value);
  let touched = false;
  const unique = (values) => [...new Set(values)];
  const scrub = () => {
    const run = here().find((one) => one.row === method.value && one.scores);
    if (!run) { scores.replaceChildren(element("p", { class: "muted" }, "No scores are kept of this run.")); return; }
    slider.max = String(run.threshold.length - 1);
    if (!touched) slider.value = slider.max;
    const batch = Math.min(Number(slider.value), run.threshold.length - 1);
    told.textContent = `batch ${batch + 1} of ${run.threshold.length}`;
    drawScores(scores, run, batch);
  };
  const show = () => {
    drawCurves(curves, here());
    const rows = unique(here().map((run) => run.row)), kept = method.value;
    options(method, rows);
    method.value = rows.includes(kept) ? kept : rows[rows.length - 1];
    scrub();
  };
  options(column, unique(table.runs.map((run) => run.column)));
  options(look, unique(table.runs.map((run) => run.look)));
  look.value = (table.runs.find((run) => run.scores) ?? table.runs[0]).look;
  column.addEventListener("change", show);
  look.addEventListener("change", show);
  method.addEventListener("change", scrub);
  slider.addEventListener("input", () => { touched = true; scrub(); });
  show();
}

document.querySelectorAll("section[data-table]").forEach(viewer);
