// Nodes and what the store can guarantee; and the audit record.

import { html } from "../vendor/preact.js";
import { api, get } from "../api.js";
import { Ago, Banner, Card, Empty, FireLink, JobLink, Problem, Table, Tag, Took, When, Words, useLoad } from "../parts.js";
import { now } from "../time.js";

const REFRESH_S = 5;
const AUDIT_REFRESH_S = 10;
const AUDIT_SHOWN = 200;
const CLOCK_BAD_MS = 1000;
const NODE_HEAD = html`<th>Node</th><th>State</th><th>Host</th><th class="num">Pid</th><th class="num">Up</th>
  <th class="num">Heartbeat</th><th class="num">Running</th><th class="num">Jobs</th><th>Queues</th>
  <th class="num mid">Clock</th><th class="num mid">Version</th>`;
const STORE_HEAD = html`<th>What</th><th>State</th><th>Found</th><th>Consequence</th><th>Advice</th>`;
const AUDIT_HEAD = html`<th>Time</th><th>User</th><th>Action</th><th>Subject</th><th>Reason</th><th>Result</th>`;

export function Nodes({ filter }) {
  const { data, error } = useLoad((signal) => get(api("nodes"), {}, signal), "", REFRESH_S);
  if (!data) return error ? html`<${Problem} error=${error}/>` : html`<${Empty}>Loading…<//>`;
  const nodes = data.nodes.filter((one) => `${one.node} ${one.host}`.includes(filter));
  return html`
    ${error && html`<${Problem} error=${error}/>`}
    ${data.remarks.map((text) => html`<${Banner} key=${text} kind="warn"><${Words} text=${text}/><//>`)}
    <${Card} title="Nodes" count=${nodes.length}>
      <${Table} head=${NODE_HEAD} rows=${nodes.map((one) => html`<${NodeRow} key=${one.node} one=${one}/>`)}
        none=${filter ? "No node matches." : html`No node is known: start <code>detent run</code>.`}/>
    <//>
    <${Card} title="Store: ${data.store.kind}">
      <${Table} head=${STORE_HEAD} rows=${data.store.diagnosis.map(diagnosis)} none="The store reports nothing about its settings."/>
    <//>`;
}

function NodeRow({ one }) {
  const offset = one.clock_offset_ms;
  const clock = offset === null ? "–" : `${offset > 0 ? "+" : ""}${offset} ms`;
  return html`<tr tabindex="-1" data-href="">
    <td class="mono">${one.node}</td>
    <td>${one.alive ? html`<${Tag} kind="ok">✓ alive<//>` : html`<${Tag} kind="bad">✕ dead<//>`}
      ${one.in_force === false && html` <${Tag} kind="warn">superseded<//>`}</td>
    <td data-l="host">${one.host}</td>
    <td class="num" data-l="pid">${one.pid}</td>
    <td class="num" data-l="up"><${Took} ms=${one.up_since ? now() - Date.parse(one.up_since) : null}/></td>
    <td class="num" data-l="heartbeat"><${Ago} at=${one.heard_at}/></td>
    <td class="num" data-l="running">${one.running}</td>
    <td class="num" data-l="jobs">${one.jobs}</td>
    <td data-l="queues">${one.queues.join(", ")}</td>
    <td class="num mid ${Math.abs(offset) > CLOCK_BAD_MS ? "problem" : ""}">${clock}</td>
    <td class="num mid">${one.version}</td>
  </tr>`;
}

const KINDS = { ok: "ok", weak: "warn", bad: "bad" };

const diagnosis = (one) => html`<tr key=${one.what}>
  <td class="name">${one.what}</td>
  <td><${Tag} kind=${KINDS[one.state]}>${one.state === "ok" ? "✓" : "!"} ${one.state}<//></td>
  <td class="mono">${one.found}</td><td class="why">${one.consequence}</td><td class="why">${one.advice}</td>
</tr>`;

// A fire, a job or a queue.
function subject(name) {
  if (/[@#]/.test(name)) return html`<${FireLink} fire=${name}/>`;
  return name.includes(".") ? html`<${JobLink} name=${name}/>` : name;
}

const auditRow = (one) => html`<tr key=${one.at + one.action + one.subject} tabindex="-1" data-href="">
  <td class="nowrap"><${When} at=${one.at}/></td><td>${one.user}</td><td><${Tag}>${one.action}<//></td>
  <td>${subject(one.subject)}</td><td class="why">${one.reason}</td><td class="why">${one.result}</td>
</tr>`;

export function Audit({ filter }) {
  const { data, error } = useLoad((signal) => get(api("audit"), { limit: AUDIT_SHOWN }, signal), "", AUDIT_REFRESH_S);
  if (!data) return error ? html`<${Problem} error=${error}/>` : html`<${Empty}>Loading…<//>`;
  const items = data.audit.filter((one) => `${one.user} ${one.action} ${one.subject} ${one.reason}`.includes(filter));
  return html`
    ${error && html`<${Problem} error=${error}/>`}
    <${Card} title="Audit" count=${items.length}>
      <${Table} head=${AUDIT_HEAD} rows=${items.map(auditRow)}
        none=${filter ? "Nothing matches." : "No action was taken from a dashboard yet."}/>
    <//>`;
}
