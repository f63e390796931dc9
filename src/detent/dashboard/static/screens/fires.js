// Fires: a list with filters in the URL, and bulk actions.

import { html } from "../vendor/preact.js";
import { MAY_OPERATE, api, firePage, get, page, query } from "../api.js";
import { bulk } from "../dialogs.js";
import { Card, Empty, JobLink, Outcome, PickBar, PickCell, Problem, Row, Tag, Took, When, stateOf, usePages, usePicked } from "../parts.js";
import { now } from "../time.js";

const OUTCOMES = ["succeeded", "failed", "rejected", "timed-out", "skipped", "replaced", "lost", "missed", "cancelled"];
const FAILURES = "failed,rejected,timed-out,lost,missed";
const STATES = [["claimed", "running"], ["pending", "waiting"], ["over", "over"]];
const ORIGINS = ["schedule", "manual", "push", "hook"];
const FILTERS = ["job", "outcome", "state", "queue", "node", "origin", "from", "to"];
const REFRESH_S = 10;
const PAGE = 50;
const LATE_MS = 5000; // later than this is marked

// Planned fires are left out unless waiting ones are asked for.
export function upToNow(given) {
  return { ...given, to: given.to || (given.state === "pending" ? "" : new Date(now()).toISOString()) };
}

export function FireTable({ fires, choice, withJob = true }) {
  return html`<table>
    <thead><tr>
      ${choice && html`<th><span class="sr">Select</span></th>`}<th>Due</th>${withJob && html`<th>Job</th>`}
      <th>Outcome</th><th>Reason</th><th class="num">Late</th><th class="num">Took</th>
      <th class="num mid">Attempts</th><th class="mid">Node</th>
    </tr></thead>
    <tbody>${fires.map((fire) => html`<${FireRow} key=${fire.fire} fire=${fire} choice=${choice} withJob=${withJob}/>`)}</tbody>
  </table>`;
}

function FireRow({ fire, choice, withJob }) {
  const none = html`<span class="faint">–</span>`;
  const late = fire.late_ms === null ? "mid" : fire.late_ms > LATE_MS ? "late" : "";
  return html`<${Row} href=${firePage(fire.fire)} job=${fire.name}>
    ${choice && html`<${PickCell} name=${fire.fire} choice=${choice}/>`}
    <td class="nowrap"><a href=${firePage(fire.fire)}><${When} at=${fire.due_at}/></a>
      ${fire.origin !== "schedule" && html` <${Tag}>${fire.origin}<//>`}</td>
    ${withJob && html`<td><${JobLink} name=${fire.name}/></td>`}
    <td><${Outcome} of=${stateOf(fire)}/>${fire.instants > 1 && html` <${Tag}>×${fire.instants}<//>`}</td>
    <td class="why rest">${fire.reason && html`<div class="cut" title=${fire.reason}>${fire.reason}</div>`}</td>
    <td class="num ${late}" data-l="late"><${Took} ms=${fire.late_ms}/></td>
    <td class="num ${fire.took_ms === null ? "mid" : ""}" data-l="took"><${Took} ms=${fire.took_ms}/></td>
    <td class="num mid">${fire.attempts.length || none}</td>
    <td class="mid soft nowrap">${fire.node || none}</td>
  <//>`;
}

export function Fires({ doc, filter, open }) {
  const given = Object.fromEntries(FILTERS.map((name) => [name, query().get(name) || ""]));
  const set = (change) => open(page("/fires", { ...given, ...change }));
  const isFiltered = FILTERS.some((name) => given[name]);
  const clear = html`<button class="small" onClick=${() => open(page("/fires"))}>Clear filters</button>`;
  return html`<${Card} title="Fires" right=${isFiltered && clear}>
    <${Filters} doc=${doc} given=${given} set=${set}/>
    <${List} key=${JSON.stringify(given)} given=${given} filter=${filter} isFiltered=${isFiltered || filter}/>
  <//>`;
}

function List({ given, filter, isFiltered }) {
  const choice = usePicked();
  const load = (values, signal) => get(api("fires"), { ...upToNow(given), limit: PAGE, ...values }, signal);
  const { pages, before, more, reload, error } = usePages(load, choice.picked.size ? 0 : REFRESH_S);
  const byKey = new Map(pages.flatMap((one) => one.fires).map((fire) => [fire.fire, fire]));
  const fires = [...byKey.values()]
    .filter((fire) => !filter || `${fire.fire} ${fire.reason || ""} ${fire.node || ""}`.includes(filter));
  const keysOf = (some) => some.map((fire) => fire.fire);
  const chosen = fires.filter((fire) => choice.picked.has(fire.fire));
  const running = keysOf(chosen.filter((fire) => fire.state !== "over"));
  const over = keysOf(chosen.filter((fire) => fire.state === "over"));
  const done = () => {
    choice.clear();
    reload();
  };
  return html`
    ${error && html`<${Problem} error=${error}/>`}
    ${fires.length > 0 && html`<${FireTable} fires=${fires} choice=${MAY_OPERATE ? choice : null}/>`}
    ${!fires.length && pages.length > 0
      && html`<${Empty}>No fire ${isFiltered ? "matches" : "is recorded yet"}${before ? " so far: look further back" : ""}.<//>`}
    ${(fires.length > 0 || before) && html`<div class="pick ${chosen.length ? "on" : ""}">
      ${before && html`<button class="small" onClick=${more}>Older</button>`}
      ${MAY_OPERATE && html`<${PickBar} keys=${keysOf(fires)} choice=${choice}>
        ${over.length > 0 && html`<button onClick=${() => bulk(over, "again", done)}>Run ${over.length} again</button>`}
        ${running.length > 0 && html`<button class="danger" onClick=${() => bulk(running, "kill", done)}>Kill ${running.length}</button>`}
      <//>`}
    </div>`}`;
}

function Filters({ doc, given, set }) {
  const change = (name) => (event) => set({ [name]: event.target.value.trim() });
  const choose = (name, label, options) => html`<select aria-label=${label} onChange=${change(name)}>
    <option value="">${label}</option>
    ${options.map(([value, text]) => html`<option value=${value} selected=${given[name] === value}>${text}</option>`)}</select>`;
  const typed = (name, hint = name) => html`<input aria-label=${name} class=${hint === name ? "" : "at"} placeholder=${hint}
    value=${given[name]} list=${name === "job" ? "job-names" : null} onChange=${change(name)}/>`;
  const plain = (values) => values.map((one) => [one, one]);
  return html`<div class="form">
    ${typed("job")}
    <datalist id="job-names">${Object.keys(doc.jobs).map((name) => html`<option value=${name}/>`)}</datalist>
    ${choose("outcome", "any outcome", [[FAILURES, "all failures"], ...plain(OUTCOMES)])}
    ${choose("state", "any state", STATES)}
    ${choose("origin", "any origin", plain(ORIGINS))}
    ${typed("queue")}${typed("node")}
    ${typed("from", "from: 2026-01-31T12:00Z")}${typed("to", "to: 2026-01-31T12:00Z")}
  </div>`;
}
