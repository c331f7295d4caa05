"use strict";
const $ = (id) => document.getElementById(id);
const headers = () => (sessionStorage.token ? { Authorization: `Bearer ${sessionStorage.token}` } : {});
let following = null;

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function shape(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { ...headers(), ...(options.headers || {}) } });
  if (answer.status === 401) {
    $("login").hidden = false;
    $("board").hidden = true;
    throw new Error("a token is needed");
  }
  if (!answer.ok) throw new Error((await answer.json()).detail);
  return answer;
}

function say(text, lost = false) {
  $("state").textContent = text;
  $("state").className = lost ? "lost" : "";
}

function percent(share) {
  return share === null ? "–" : `${(100 * share).toFixed(1)} %`;
}

function numbers(s) {
  const shown = [
    ["rejected of the last answers", percent(s.rejected)],
    ["threshold", s.threshold === null ? "none" : s.threshold.toFixed(3)],
    ["samples", s.samples],
    ["batches learned", s.generation],
    ["waiting", s.queued],
    ["p50 / p99 in ms", s.latency_ms.p50 === undefined ? "–" : `${s.latency_ms.p50} / ${s.latency_ms.p99}`],
    ["effective classes", s.watch.classes === undefined ? "–" : s.watch.classes],
    ["guard events", s.watch.events === undefined ? 0 : s.watch.events],
  ];
  $("numbers").replaceChildren(
    ...shown.map(([name, value]) => {
      const box = element("div");
      box.append(element("b", value), element("span", name));
      return box;
    }),
  );
}

function histogram(s) {
  const { edges, accepted, rejected } = s.histogram;
  const most = Math.max(1, ...accepted.map((count, i) => count + rejected[i]));
  const width = 620 / Math.max(1, accepted.length);
  const parts = [];
  accepted.forEach((count, i) => {
    const low = (180 * count) / most;
    const high = (180 * rejected[i]) / most;
    parts.push(shape("rect", { class: "accepted", x: 10 + i * width, y: 195 - low, width: width - 1, height: low }));
    parts.push(shape("rect", { class: "rejected", x: 10 + i * width, y: 195 - low - high, width: width - 1, height: high }));
  });
  const first = edges[0];
  const last = edges[edges.length - 1];
  if (s.threshold !== null && s.threshold >= first && s.threshold <= last) {
    const x = 10 + (620 * (s.threshold - first)) / (last - first);
    parts.push(shape("line", { x1: x, x2: x, y1: 8, y2: 195 }));
  }
  parts.push(shape("text", { x: 10, y: 212 }, first === 0 ? "0" : first.toFixed(2)), shape("text", { x: 590, y: 212 }, last.toFixed(2)));
  $("histogram").replaceChildren(...parts);
}

function classes(s) {
  const all = Object.values(s.classes).reduce((a, b) => a + b, 0) || 1;
  $("classes").replaceChildren(
    ...Object.entries(s.classes).slice(0, 20).map(([name, count]) => {
      const row = element("div", undefined, { class: "bar" });
      row.append(element("span", name), element("meter", "", { value: count / all }), element("span", percent(count / all)));
      return row;
    }),
  );
}

function image(png, alternative) {
  return element("img", undefined, { src: `data:image/png;base64,${png}`, alt: alternative });
}

function promoted(names) {
  const place = $("promoted");
  if (place.dataset.names === JSON.stringify(names)) return; // a button must not vanish under a finger
  place.dataset.names = JSON.stringify(names);
  place.replaceChildren(
    ...names.flatMap((name) => {
      const button = element("button", "demote", { "aria-label": `demote ${name}` });
      button.addEventListener("click", () => act("demote", { name }));
      return [element("span", `promoted: ${name} `), button];
    }),
  );
}

function show(s) {
  if (s.restarting) {
    say("starting again", true);
    return;
  }
  $("board").hidden = false;
  $("login").hidden = true;
  numbers(s);
  histogram(s);
  classes(s);
  $("last").replaceChildren(
    ...s.last.map((one) => {
      const figure = element("figure");
      figure.append(image(one.png, `rejected, nearest ${one.best}`), element("figcaption", `${one.best} ${one.score.toFixed(2)}`));
      return figure;
    }),
  );
  $("events").replaceChildren(...s.events.map((e) => element("li", `batch ${e.batch}: ${e.kind} – ${e.detail}`)));
  promoted(s.promoted);
  say(s.frozen ? "frozen" : "live");
}

async function follow(stream) {
  if (following) following.abort();
  following = new AbortController();
  const { signal } = following;
  while (!signal.aborted) {
    try {
      const answer = await ask(`v1/streams/${stream}/events`, { signal });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ; ) {
        const { done, value } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) show(JSON.parse(part.slice("data: ".length)));
      }
    } catch (error) {
      if (signal.aborted) return;
      say(error.message, true);
      if (!$("login").hidden) return;
    }
    await new Promise((wake) => setTimeout(wake, 2000));
  }
}

async function act(name, body) {
  try {
    const options = { method: "POST" };
    if (body) Object.assign(options, { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
    await ask(`v1/streams/${$("stream").value}/${name}`, options);
    say(`${name}: done`);
  } catch (error) {
    say(error.message, true);
  }
}

async function look() {
  say("looking for groups …");
  try {
    const { clusters } = await (await ask(`v1/streams/${$("stream").value}/clusters`)).json();
    $("clusters").replaceChildren(
      ...clusters.map((group) => {
        const box = element("div", undefined, { class: "group" });
        const title = group.number < 0 ? "in no group" : `group ${group.number + 1}`;
        box.append(element("p", `${title}: ${group.size} samples, mean score ${group.mean_score.toFixed(2)}`));
        const pictures = element("div", undefined, { class: "pictures" });
        pictures.append(...group.pictures.map((png) => image(png, title)));
        box.append(pictures);
        if (group.number >= 0) {
          const name = element("input", undefined, { placeholder: "name of the class", maxlength: 64, "aria-label": "name" });
          const button = element("button", "promote");
          button.addEventListener("click", () => act("promote", { name: name.value, ids: group.ids }));
          box.append(name, button);
        }
        return box;
      }),
    );
    say(`${clusters.length} groups`);
  } catch (error) {
    say(error.message, true);
  }
}

async function begin() {
  try {
    const { streams } = await (await ask("v1/streams")).json();
    const chosen = $("stream").value;
    $("stream").replaceChildren(...streams.map((s) => element("option", s.stream, { value: s.stream })));
    if (!streams.length) {
      say("no stream yet");
      setTimeout(begin, 2000);
      return;
    }
    if (chosen) $("stream").value = chosen;
    follow($("stream").value);
  } catch (error) {
    say(error.message, true);
  }
}

$("stream").addEventListener("change", () => follow($("stream").value));
$("look").addEventListener("click", look);
for (const button of document.querySelectorAll("[data-act]")) button.addEventListener("click", () => act(button.dataset.act));
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.token = $("token").value;
  begin();
});
begin();
