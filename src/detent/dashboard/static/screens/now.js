// Now: whether all is well, what ran, what runs, what needs attention, and what comes next.

import { html, useState } from "../vendor/preact.js";
import { MAY_OPERATE, firePage, jobPage, page, short } from "../api.js";
import { killFire } from "../dialogs.js";
import { live } from "../live.js";
import { Ago, Card, Empty, Icon, Paused, Tag, Took, Words } from "../parts.js";
import { Legend, Timeline, Windows, timelineRows } from "../timeline.js";
import { now } from "../time.js";

const NO_JOBS = "No job is known yet: start `detent run` with a manifest.";
const SHOWN_MAX = 10; // entries of a list
const ROWS_MAX = 40; // rows of the timeline before "show all"

export function Now({ doc, filter, open }) {
  const matches = (name) => !filter || short(name || "").includes(filter);
  return html`
    <${Stats} doc=${doc}/>
    <${Rows} doc=${doc} matches=${matches} open=${open}/>
    <div class="cols">
      <${Attention} items=${doc.attention.filter((one) => matches(one.job || one.queue))}/>
      <${Running} doc=${doc} fires=${doc.running.filter((fire) => matches(fire.name))}/>
      <${Next} jobs=${doc.jobs} matches=${matches}/>
    </div>`;
}

export function Verdict({ doc }) {
  const { ok, text } = doc.headline;
  const lines = ok || !doc.problems.length ? [text] : doc.problems;
  return html`<div class="verdict ${ok ? "" : "bad"}">
    <span class="sr" role="status">${ok ? "all is well" : "there are problems"}</span>
    <span class="sign" aria-hidden="true">${ok ? "✓" : "!"}</span>
    <ul>${lines.map((line) => html`<li key=${line} class="say"><${Words} text=${line}/></li>`)}</ul>
  </div>`;
}

function Stats({ doc }) {
  const count = (what) => doc.attention.filter((one) => one.what === what).length;
  const paused = Object.values(doc.jobs).filter((job) => job.paused).length;
  const alive = doc.nodes.filter((node) => node.alive).length;
  // [text, number, page, class if the number is not 0, class if it is]
  const items = [
    ["running", doc.running_count, page("/fires", { state: "claimed" }), "", ""],
    ["failing", count("failing"), page("/jobs", { state: "failing" }), "bad", "zero"],
    ["late", count("late"), page("/jobs", { state: "late" }), "bad", "zero"],
    ["retrying", count("retrying"), page("/fires", { state: "pending" }), "warn", "zero"],
    ["paused", paused, page("/jobs", { state: "paused" }), "warn", "zero"],
    ["messages waiting", doc.messages.waiting, page("/queues"), "", "zero"],
    ["dead letters", doc.messages.dead, page("/queues"), "warn", "zero"],
    [alive === 1 ? "node alive" : "nodes alive", alive, page("/nodes"), "", "bad"],
  ];
  return html`<div class="stats">${items.map(([text, number, href, some, none]) => html`<a key=${href + text} href=${href}
    class=${number ? some : none}><b>${number.toLocaleString("en")}</b><span>${text}</span></a>`)}</div>`;
}

function Rows({ doc, matches, open }) {
  const [all, setAll] = useState(false);
  const attention = new Set(doc.attention.map((one) => one.job));
  const weight = ({ name }) => (attention.has(name) ? 4 : 0) + (doc.jobs[name].running ? 2 : 0) + (live.rows[name] || doc.buckets[name] ? 1 : 0);
  const rows = timelineRows(doc, Object.keys(doc.jobs).filter(matches));
  const few = rows.length <= ROWS_MAX || all ? rows
    : [...rows].sort((a, b) => weight(b) - weight(a)).slice(0, ROWS_MAX).sort((a, b) => (a.name < b.name ? -1 : 1));
  return html`<${Card} title="Timeline" right=${html`<${Windows}/>`}>
    ${rows.length ? html`<${Timeline} rows=${few} window=${live.window} step=${doc.timeline.step_s} open=${open}/>`
      : html`<${Empty}><${Words} text=${Object.keys(doc.jobs).length ? "No job matches the filter." : NO_JOBS}/><//>`}
    ${rows.length > few.length && html`<div class="more">
      <button class="small" onClick=${() => setAll(true)}>Show all ${rows.length} jobs</button></div>`}
    <${Legend}/>
  <//>`;
}
const More = ({ count, href }) => count > 0 && html`<div class="more"><a class="soft" href=${href}>and ${count} more</a></div>`;

function Running({ doc, fires }) {
  return html`<${Card} title="Running" count=${doc.running_count}>
    ${fires.length ? html`<ul class="rows">${fires.slice(0, SHOWN_MAX).map((fire) => html`<li key=${fire.fire}>
      <a class="cut" href=${firePage(fire.fire)}>${short(fire.name)}</a>
      <span class="when"><${Took} ms=${fire.started_at ? Math.max(0, now() - Date.parse(fire.started_at)) : null}/></span>
      <span class="soft">on ${fire.node}${fire.attempt > 1 ? `, attempt ${fire.attempt}` : ""}</span>
      <span class="when">${MAY_OPERATE && html`<button class="small danger" onClick=${() => killFire(fire.fire)}>Kill</button>`}</span>
    </li>`)}</ul>` : html`<${Empty}>Nothing runs at the moment.<//>`}
    <${More} count=${doc.running_count - SHOWN_MAX} href=${page("/fires", { state: "claimed" })}/>
  <//>`;
}

// In the order in which they are listed.
const SHAPES = { unserved: "bar", failing: "cross", late: "clock", node: "alert", retrying: "again" };

function Attention({ items }) {
  const order = Object.keys(SHAPES);
  const sorted = [...items].sort((a, b) => order.indexOf(a.what) - order.indexOf(b.what));
  const kind = (one) => (one.what === "retrying" ? "warn" : "bad");
  const href = (one) => (one.fire ? firePage(one.fire) : one.job ? jobPage(one.job) : one.queue ? page("/queues") : page("/nodes"));
  return html`<${Card} title="Needs attention" count=${items.length}>
    ${items.length ? html`<ul class="rows">${sorted.slice(0, SHOWN_MAX).map((one) => html`<li key=${one.what + href(one) + one.text}>
      <span class="cut"><a class="name" href=${href(one)}>${short(one.job || one.queue || one.what)}</a> <${Tag} kind=${kind(one)}>
        <${Icon} shape=${SHAPES[one.what]}/>${one.what}${one.times > 1 ? ` ×${one.times}` : ""}<//></span>
      <span class="when">${one.since && html`<${Ago} at=${one.since}/>`}</span>
      <span class="note"><${Words} text=${one.text}/></span>
    </li>`)}</ul>` : html`<${Empty}>No job fails or is late.<//>`}
    <${More} count=${items.length - SHOWN_MAX} href=${page("/jobs")}/>
  <//>`;
}

function Next({ jobs, matches }) {
  const coming = Object.entries(jobs).filter(([name, job]) => job.next_due_at && matches(name))
    .sort(([, a], [, b]) => (a.next_due_at < b.next_due_at ? -1 : 1));
  return html`<${Card} title="Next" count=${coming.length}>
    ${coming.length ? html`<ul class="rows">${coming.slice(0, SHOWN_MAX).map(([name, job]) => html`<li key=${name}>
      <span class="cut"><a class="name" href=${jobPage(name)}>${short(name)}</a> ${job.paused && html`<${Paused}/>`}</span>
      <span class="when"><${Ago} at=${job.next_due_at}/></span>
    </li>`)}</ul>` : html`<${Empty}>No instant is planned.<//>`}
    <${More} count=${coming.length - SHOWN_MAX} href=${page("/jobs")}/>
  <//>`;
}
