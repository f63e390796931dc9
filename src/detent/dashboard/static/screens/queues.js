// Queues: what waits and runs on each, and its dead letters.

import { html } from "../vendor/preact.js";
import { MAY_OPERATE, api, firePage, get, page, short } from "../api.js";
import { dead, runJob } from "../dialogs.js";
import { Ago, Card, Empty, Outcome, PickBar, PickCell, Problem, Row, Table, Tag, useLoad, usePages, usePicked } from "../parts.js";
import { duration } from "../time.js";

const REFRESH_S = 5;
const PAGE = 50;
const QUEUE_HEAD = html`<th>Queue</th><th>Served by</th><th class="num">Pending</th><th class="num">Delayed</th>
  <th class="num">Running</th><th class="num">Dead</th><th class="num">Oldest</th>
  <th class="num mid">In / min</th><th class="num mid">Out / min</th><th class="mid">Rate</th>`;
const DEAD_HEAD = html`${MAY_OPERATE && html`<th><span class="sr">Select</span></th>`}<th>Task</th><th>Outcome</th><th>Exception</th>
  <th>Arguments</th><th class="num">Attempts</th><th class="num">Ended</th><th><span class="sr">Actions</span></th>`;
const queuePage = (name) => page(`/queues/${encodeURIComponent(name)}`);
const none = (text = "–") => html`<span class="faint">${text}</span>`;

export function Queues({ name, filter }) {
  const { data, error } = useLoad((signal) => get(api("queues"), {}, signal), "", REFRESH_S);
  if (!data) return error ? html`<${Problem} error=${error}/>` : html`<${Empty}>Loading…<//>`;
  const queues = data.queues.filter((one) => (name ? one.queue === name : one.queue.includes(filter)));
  const tasks = data.tasks.filter((one) => (name ? one.queue === name : one.name.includes(filter)));
  const withDead = name ? queues : queues.filter((one) => one.dead);
  return html`
    ${name && html`<div class="head"><div>
      <div class="crumb"><a href=${page("/queues")}>Queues</a></div><h1>${name}</h1></div></div>`}
    ${error && html`<${Problem} error=${error}/>`}
    <${Card} title=${name ? "Queue" : "Queues"} count=${name ? undefined : queues.length}>
      <${Table} head=${QUEUE_HEAD} rows=${queues.map((one) => html`<${QueueRow} key=${one.queue} one=${one}/>`)}
        none="No queue ${filter || name ? "matches" : "has messages, and no node serves one"}."/>
    <//>
    ${tasks.length > 0 && html`<${Tasks} tasks=${tasks}/>`}
    ${data.breakers.length > 0 && html`<${Breakers} breakers=${data.breakers}/>`}
    ${withDead.map((one) => html`<${Dead} key=${one.queue} queue=${one.queue} filter=${name ? filter : ""}/>`)}`;
}

function QueueRow({ one }) {
  const waits = one.pending + one.delayed > 0;
  const unserved = waits ? html`<${Tag} kind="bad">✕ no node serves it<//>` : none("no node");
  const number = (value, bad) =>
    value ? html`<span class=${bad ? "problem" : ""}>${value.toLocaleString("en")}</span>` : none("0");
  return html`<${Row} href=${queuePage(one.queue)}>
    <td><a class="name" href=${queuePage(one.queue)}>${one.queue}</a></td>
    <td>${one.served ? `${one.served} ${one.served === 1 ? "node" : "nodes"}` : unserved}</td>
    <td class="num" data-l="pending">${number(one.pending)}</td>
    <td class="num" data-l="delayed">${number(one.delayed)}</td>
    <td class="num" data-l="running">${number(one.running)}</td>
    <td class="num" data-l="dead">${number(one.dead, true)}</td>
    <td class="num" data-l="oldest">${one.oldest_s ? duration(one.oldest_s * 1000) : none()}</td>
    <td class="num mid">${one.in_per_min ?? none()}</td>
    <td class="num mid">${one.out_per_min ?? none()}</td>
    <td class="mid soft">${one.rate ? rateText(one.rate) : none("no limit")}</td>
  <//>`;
}

const rateText = (rate) =>
  `${rate.used} of ${rate.most} in ${duration(rate.per_s * 1000)}${rate.by_key ? ", by key" : ""}`;

const Breakers = ({ breakers }) => html`<${Card} title="Circuit breakers" count=${breakers.length}>
  <ul class="rows">${breakers.map((one) => html`<li key=${one.name}>
    <span>${one.name} <${Tag} kind=${one.state === "open" ? "bad" : "ok"}>${one.state}<//></span>
    <span class="when">${one.errors} errors in a row</span></li>`)}</ul>
<//>`;

const Tasks = ({ tasks }) => html`<${Card} title="Tasks" count=${tasks.length}>
  <ul class="rows">${tasks.map((one) => html`<li key=${one.name}>
    <span class="cut"><a class="name" href=${page("/fires", { job: one.name })}>${short(one.name)}</a>${" "}
      <span class="sub mono">${one.takes.join(", ")}</span></span>
    <span class="when">${MAY_OPERATE && html`<button class="small" onClick=${() => runJob(one.name, () => {}, one.takes)}>Run</button>`}</span>
    <span class="soft">on ${one.queue}</span></li>`)}</ul>
<//>`;

function Dead({ queue, filter }) {
  const choice = usePicked();
  const load = (values, signal) => get(api("queues", queue, "dead"), { limit: PAGE, ...values }, signal);
  const { pages, before, more, reload, error } = usePages(load, choice.picked.size ? 0 : REFRESH_S);
  const items = pages.flatMap((one) => one.dead)
    .filter((one) => `${one.fire} ${one.task} ${one.reason}`.includes(filter));
  const keys = items.map((one) => one.fire);
  const chosen = keys.filter((key) => choice.picked.has(key));
  const done = () => {
    choice.clear();
    reload();
  };
  const act = (some, verb) => () => dead(queue, some, verb, done);
  return html`<${Card} title="Dead letters of ${queue}" count=${`${items.length}${before ? "+" : ""}`}>
    ${error && html`<${Problem} error=${error}/>`}
    ${pages.length > 0 && html`<${Table} head=${DEAD_HEAD} none="None${filter ? " matches" : ""}."
      rows=${items.map((one) => html`<${Letter} key=${one.fire} one=${one} choice=${choice} act=${act}/>`)}/>`}
    ${(before || (MAY_OPERATE && items.length > 0)) && html`<div class="pick ${chosen.length ? "on" : ""}">
      ${before && html`<button class="small" onClick=${more}>Older</button>`}
      ${MAY_OPERATE && html`<${PickBar} keys=${keys} choice=${choice}>
        ${chosen.length > 0 && html`<button onClick=${act(chosen, "retry")}>Retry ${chosen.length}</button>
          <button class="danger" onClick=${act(chosen, "forget")}>Forget ${chosen.length}</button>`}
      <//>`}
    </div>`}
  <//>`;
}

function Letter({ one, choice, act }) {
  return html`<${Row} href=${firePage(one.fire)}>
    ${MAY_OPERATE && html`<${PickCell} name=${one.fire} choice=${choice}/>`}
    <td class="task"><a class="name" href=${firePage(one.fire)}>${one.task || one.name}</a>
      <div class="sub mono">${one.fire}</div></td>
    <td><${Outcome} of=${one.outcome}/></td>
    <td class="why">${one.reason}</td>
    <td class="why mono"><div class="args">${one.arguments === null ? "hidden" : JSON.stringify(one.arguments)}</div></td>
    <td class="num" data-l="attempts">${one.attempts}</td>
    <td class="num" data-l="ended"><${Ago} at=${one.over_at}/></td>
    <td class="acts">${MAY_OPERATE && html`<button class="small" onClick=${act([one.fire], "retry")}>Retry</button>
      <button class="small danger" onClick=${act([one.fire], "forget")}>Forget</button>`}</td>
  <//>`;
}
