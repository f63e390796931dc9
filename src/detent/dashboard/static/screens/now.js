// Now: whether all is well, what ran, what runs, what needs attention, and what comes next.

import { html, useState } from "../vendor/preact.js";
import { MAY_OPERATE, firePage, jobPage, page, short } from "../api.js";
import { killFire } from "../dialogs.js";
import { live, setWindow } from "../live.js";
import { Ago, Card, Empty, Took } from "../parts.js";
import { Legend, Timeline } from "../timeline.js";
import { now } from "../time.js";

const ROWS_MAX = 40; // rows of the timeline before "show all"
const WINDOWS = [["10 min", 600], ["1 h", 3600], ["24 h", 86400]];

export function Now({ doc, filter, open }) {
  const matches = (name) => !filter || short(name || "").includes(filter);
  return html`
    <${Stats} doc=${doc}/>
    <${Rows} doc=${doc} matches=${matches} open=${open}/>
    <div class="cols">
      <${Attention} items=${doc.attention.filter((one) => matches(one.job || one.queue))}/>
      <${Running} doc=${doc} fires=${doc.running.filter((fire) => matches(fire.name))}/>
      <${Next} items=${doc.next.filter((one) => matches(one.name))}/>
    </div>`;
}

export function Verdict({ doc }) {
  const { ok, text } = doc.headline;
  const lines = ok || !doc.problems.length ? [text] : doc.problems;
  return html`<div class="verdict ${ok ? "" : "bad"}" role="status">
    <span class="sign" aria-hidden="true">${ok ? "✓" : "!"}</span>
    <ul>${lines.map((line) => html`<li key=${line} class="say">${line}</li>`)}</ul>
  </div>`;
}

function Stats({ doc }) {
  const count = (what) => doc.attention.filter((one) => one.what === what).length;
  const jobs = Object.values(doc.jobs);
  const alive = doc.nodes.filter((node) => node.alive).length;
  const items = [
    ["running", doc.running_count, page("/fires", { state: "claimed" }), ""],
    ["failing", count("failing"), page("/jobs", { state: "failing" }), "bad"],
    ["late", count("late"), page("/jobs", { state: "late" }), "bad"],
    ["retrying", count("retrying"), page("/fires", { state: "pending" }), "warn"],
    ["paused", jobs.filter((job) => job.paused).length, page("/jobs", { state: "paused" }), "warn"],
    ["unserved queues", count("unserved"), page("/queues"), "bad"],
    [alive === 1 ? "node alive" : "nodes alive", alive, page("/nodes"), alive ? "" : "bad"],
    [jobs.length === 1 ? "job" : "jobs", jobs.length + doc.jobs_left_out, page("/jobs"), ""],
  ];
  return html`<div class="stats">${items.map(([text, number, href, cls]) => html`<a key=${text} href=${href}
    class=${number ? cls : cls && !text.startsWith("node") ? "zero" : cls}><b>${number}</b><span>${text}</span></a>`)}</div>`;
}

function Rows({ doc, matches, open }) {
  const [all, setAll] = useState(false);
  const coming = {};
  for (const one of doc.next) if (!one.paused) (coming[one.name] ||= []).push(Date.parse(one.due_at) / 1000);
  const attention = new Set(doc.attention.map((one) => one.job));
  const isBuckets = doc.timeline.kind === "buckets";
  const rows = Object.entries(doc.jobs).filter(([name]) => matches(name)).map(([name, job]) => ({
    name,
    marks: live.rows[name] || NONE,
    buckets: isBuckets ? doc.buckets[name] || NONE : null,
    paused: job.paused,
    bad: /failing|late/.test(job.state),
    coming: coming[name] || (job.next_due_at && !job.paused ? [Date.parse(job.next_due_at) / 1000] : NONE),
    weight: (attention.has(name) ? 4 : 0) + (job.running ? 2 : 0) + (live.rows[name]?.length || doc.buckets[name] ? 1 : 0),
  }));
  const few = rows.length <= ROWS_MAX || all ? rows
    : [...rows].sort((a, b) => b.weight - a.weight).slice(0, ROWS_MAX).sort((a, b) => (a.name < b.name ? -1 : 1));
  const choice = html`<span class="seg" role="group" aria-label="how far back">${WINDOWS.map(([text, seconds]) =>
    html`<button type="button" aria-pressed=${String(live.window === seconds)} onClick=${() => setWindow(seconds)}>${text}</button>`)}</span>`;
  return html`<${Card} title="Timeline" right=${choice}>
    ${rows.length ? html`<${Timeline} rows=${few} window=${live.window} step=${doc.timeline.step_s} open=${open}/>`
      : html`<${Empty}>No job ${Object.keys(doc.jobs).length ? "matches the filter" : "is known yet: start <code>detent run</code> with a manifest"}.<//>`}
    ${rows.length > few.length && html`<div class="more"><button type="button" class="small" onClick=${() => setAll(true)}>Show all ${rows.length} jobs</button></div>`}
    <${Legend}/>
  <//>`;
}
const NONE = [];

function Running({ doc, fires }) {
  return html`<${Card} title="Running" count=${doc.running_count}>
    ${fires.length ? html`<ul class="rows">${fires.slice(0, 12).map((fire) => html`<li key=${fire.fire}>
      <a class="cut" href=${firePage(fire.fire)}>${short(fire.name)}</a>
      <span class="when"><${Took} ms=${fire.started_at ? Math.max(0, now() - Date.parse(fire.started_at)) : null}/></span>
      <span class="note">on ${fire.node}${fire.attempt > 1 ? `, attempt ${fire.attempt}` : ""}
        ${MAY_OPERATE && html` · <button class="plain small danger" onClick=${() => killFire(fire.fire)}>Kill</button>`}</span>
    </li>`)}</ul>` : html`<${Empty}>Nothing runs at the moment.<//>`}
  <//>`;
}

const SIGNS = { failing: "✕", late: "⧗", unserved: "∅", retrying: "↻", node: "!", store: "!" };

function Attention({ items }) {
  const order = ["store", "unserved", "failing", "late", "node", "retrying"];
  const sorted = [...items].sort((a, b) => order.indexOf(a.what) - order.indexOf(b.what));
  const href = (one) => (one.fire ? firePage(one.fire) : one.job ? jobPage(one.job) : one.queue ? page("/queues") : page("/nodes"));
  return html`<${Card} title="Needs attention" count=${items.length}>
    ${items.length ? html`<ul class="rows">${sorted.slice(0, 12).map((one) => html`<li key=${one.what + (one.fire || one.job || one.queue || one.text)}>
      <a class="cut" href=${href(one)}><span aria-hidden="true">${SIGNS[one.what]} </span>${short(one.job || one.queue || one.what)}
        <span class="tag ${one.what === "retrying" ? "warn" : "bad"}">${one.what}${one.times > 1 ? ` ×${one.times}` : ""}</span></a>
      <span class="when">${one.since && html`<${Ago} at=${one.since}/>`}</span>
      <span class="note">${one.text}</span>
    </li>`)}</ul>` : html`<${Empty}>Nothing: no job fails or is late, and every queue is served.<//>`}
  <//>`;
}

function Next({ items }) {
  return html`<${Card} title="Next" count=${items.length}>
    ${items.length ? html`<ul class="rows">${items.slice(0, 12).map((one) => html`<li key=${one.name + one.due_at}>
      <a class="cut" href=${jobPage(one.name)}>${short(one.name)}${one.paused ? html` <span class="tag warn">⏸ paused</span>` : ""}</a>
      <span class="when"><${Ago} at=${one.due_at}/></span>
    </li>`)}</ul>` : html`<${Empty}>No instant is planned.<//>`}
  <//>`;
}
