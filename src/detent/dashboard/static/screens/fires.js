// Fires: a list with filters in the URL, and bulk actions.

import { html, useState } from "../vendor/preact.js";
import { BULK_MAX, MAY_OPERATE, api, firePage, get, page, query } from "../api.js";
import { bulk } from "../dialogs.js";
import { Card, Empty, JobLink, Outcome, Problem, Row, Took, When, stateOf, useLoad } from "../parts.js";
import { now } from "../time.js";

const OUTCOMES = ["succeeded", "failed", "rejected", "timed-out", "skipped", "replaced", "lost", "missed", "cancelled"];
const FILTERS = ["job", "outcome", "state", "queue", "node", "origin", "from", "to"];
const REFRESH_S = 10;
const PAGE = 50;
const LATE_MS = 5000; // later than this is marked

// Planned fires are left out unless waiting ones are asked for.
export const upToNow = (given) => ({ ...given, to: given.to || (given.state === "pending" ? "" : new Date(now()).toISOString()) });

export function FireTable({ fires, picked, onPick, withJob = true }) {
  return html`<table>
    <thead><tr>${onPick && html`<th><span class="sr">Select</span></th>`}<th>Due</th>${withJob && html`<th>Job</th>`}<th>Outcome</th><th>Reason</th>
      <th class="num">Late</th><th class="num">Took</th><th class="num mid">Attempts</th><th class="mid">Node</th></tr></thead>
    <tbody>${fires.map((fire) => html`<${Row} key=${fire.fire} href=${firePage(fire.fire)} job=${fire.name}>
      ${onPick && html`<td class="pickcell"><input type="checkbox" aria-label="select ${fire.fire}" checked=${picked.has(fire.fire)} onChange=${() => onPick(fire.fire)}/></td>`}
      <td class="nowrap"><a href=${firePage(fire.fire)}><${When} at=${fire.due_at}/></a>${fire.origin !== "schedule" && html` <span class="tag">${fire.origin}</span>`}</td>
      ${withJob && html`<td><${JobLink} name=${fire.name}/></td>`}
      <td><${Outcome} of=${stateOf(fire)}/>${fire.instants > 1 && html` <span class="tag">×${fire.instants}</span>`}</td>
      <td class="why rest">${fire.reason && html`<div class="cut" title=${fire.reason}>${fire.reason}</div>`}</td>
      <td class="num ${fire.late_ms === null ? "mid" : fire.late_ms > LATE_MS ? "late" : ""}" data-l="late"><${Took} ms=${fire.late_ms}/></td>
      <td class="num ${fire.took_ms === null ? "mid" : ""}" data-l="took"><${Took} ms=${fire.took_ms}/></td>
      <td class="num mid">${fire.attempts.length || html`<span class="faint">–</span>`}</td>
      <td class="mid soft nowrap">${fire.node || html`<span class="faint">–</span>`}</td>
    <//>`)}</tbody>
  </table>`;
}

export function Fires({ doc, filter, open }) {
  const given = Object.fromEntries(FILTERS.map((name) => [name, query().get(name) || ""]));
  const set = (change) => open(page("/fires", { ...given, ...change }));
  const isFiltered = FILTERS.some((name) => given[name]);
  return html`<${Card} title="Fires" right=${isFiltered && html`<button class="small" onClick=${() => open(page("/fires"))}>Clear filters</button>`}>
    <${Filters} doc=${doc} given=${given} set=${set}/>
    <${List} key=${JSON.stringify(given)} given=${given} filter=${filter} isFiltered=${isFiltered || filter}/>
  <//>`;
}

function List({ given, filter, isFiltered }) {
  const [picked, setPicked] = useState(new Set());
  const [older, setOlder] = useState({ fires: [], before: undefined, error: null });
  const first = useLoad((signal) => get(api("fires"), { ...upToNow(given), limit: PAGE }, signal), "", picked.size ? 0 : REFRESH_S);
  const before = older.before === undefined ? first.data?.before : older.before;
  const seen = new Set();
  const fires = [...(first.data?.fires || []), ...older.fires].filter((fire) => !seen.has(fire.fire) && seen.add(fire.fire))
    .filter((fire) => !filter || `${fire.fire} ${fire.reason || ""} ${fire.node || ""}`.includes(filter));
  const more = async () => {
    try {
      const answer = await get(api("fires"), { ...upToNow(given), before, limit: PAGE });
      setOlder({ fires: [...older.fires, ...answer.fires], before: answer.before, error: null });
    } catch (error) {
      setOlder({ ...older, error });
    }
  };
  const pick = (key) => {
    const next = new Set(picked);
    if (!next.delete(key) && next.size < BULK_MAX) next.add(key);
    setPicked(next);
  };
  const clear = () => {
    setPicked(new Set());
    first.reload();
  };
  const chosen = fires.filter((fire) => picked.has(fire.fire));
  const running = chosen.filter((fire) => fire.state !== "over").map((fire) => fire.fire);
  const over = chosen.filter((fire) => fire.state === "over").map((fire) => fire.fire);
  return html`
    ${first.error && html`<${Problem} error=${first.error}/>`}
    ${fires.length ? html`<${FireTable} fires=${fires} picked=${picked} onPick=${MAY_OPERATE ? pick : null}/>`
      : first.data && html`<${Empty}>No fire ${isFiltered ? "matches" : "is recorded yet"}${before ? " so far: look further back" : ""}.<//>`}
    ${fires.length + (before ? 1 : 0) > 0 && html`<div class="pick ${picked.size ? "on" : ""}">
      ${before && html`<button class="small" onClick=${more}>Older</button>`}${older.error && html`<span class="problem">${older.error.message}</span>`}
      ${MAY_OPERATE && fires.length > 0 && html`<button class="plain" onClick=${() => setPicked(picked.size ? new Set() : new Set(fires.slice(0, BULK_MAX).map((fire) => fire.fire)))}>${picked.size ? "Select none" : `Select all ${Math.min(fires.length, BULK_MAX)}`}</button>`}
      ${chosen.length > 0 && html`<b>${chosen.length} selected</b>`}
      ${over.length > 0 && html`<button onClick=${() => bulk(over, "again", clear)}>Run ${over.length} again</button>`}
      ${running.length > 0 && html`<button class="danger" onClick=${() => bulk(running, "kill", clear)}>Kill ${running.length}</button>`}
    </div>`}`;
}

function Filters({ doc, given, set }) {
  const pickOne = (name, label, options) => html`<select aria-label=${label} value=${given[name]} onChange=${(event) => set({ [name]: event.target.value })}>
    <option value="">${label}</option>${options.map(([value, text]) => html`<option value=${value} selected=${given[name] === value}>${text}</option>`)}</select>`;
  const typed = (name, label, list) => html`<input aria-label=${label} placeholder=${label} value=${given[name]} list=${list} onChange=${(event) => set({ [name]: event.target.value.trim() })}/>`;
  const instant = (name, label) => html`<input class="at" aria-label=${label} placeholder="${label}: 2026-01-31T12:00Z" value=${given[name]} onChange=${(event) => set({ [name]: event.target.value.trim() })}/>`;
  return html`<div class="form">
    ${typed("job", "job", "job-names")}
    <datalist id="job-names">${Object.keys(doc.jobs).map((name) => html`<option value=${name}/>`)}</datalist>
    ${pickOne("outcome", "any outcome", [["failed,rejected,timed-out,lost,missed", "all failures"], ...OUTCOMES.map((one) => [one, one])])}
    ${pickOne("state", "any state", [["claimed", "running"], ["pending", "waiting"], ["over", "over"]])}
    ${pickOne("origin", "any origin", ["schedule", "manual", "push", "hook"].map((one) => [one, one]))}
    ${typed("queue", "queue")}${typed("node", "node")}${instant("from", "from")}${instant("to", "to")}
  </div>`;
}
