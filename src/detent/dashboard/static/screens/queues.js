// Queues: what waits and runs on each, and its dead letters.

import { html, useState } from "../vendor/preact.js";
import { BULK_MAX, MAY_OPERATE, api, firePage, get, page } from "../api.js";
import { dead } from "../dialogs.js";
import { Ago, Card, Empty, Outcome, Problem, Row, Tag, useLoad } from "../parts.js";
import { pieces } from "../ansi.js";
import { duration } from "../time.js";

const REFRESH_S = 5;
const queuePage = (name) => page(`/queues/${encodeURIComponent(name)}`);

export function Queues({ name, filter }) {
  const { data, error } = useLoad((signal) => get(api("queues"), {}, signal), "", REFRESH_S);
  if (!data) return error ? html`<${Problem} error=${error}/>` : html`<${Empty}>Loading…<//>`;
  const queues = data.queues.filter((one) => (name ? one.queue === name : one.queue.includes(filter)));
  return html`
    ${name && html`<div class="head"><div><div class="crumb"><a href=${page("/queues")}>Queues</a></div><h1>${name}</h1></div></div>`}
    ${error && html`<${Problem} error=${error}/>`}
    <${Card} title=${name ? "Queue" : "Queues"} count=${name ? undefined : queues.length}>
      ${queues.length ? html`<table>
        <thead><tr><th>Queue</th><th>Served by</th><th class="num">Pending</th><th class="num">Delayed</th><th class="num">Running</th><th class="num">Dead</th><th class="num">Oldest</th><th class="num mid">In / min</th><th class="num mid">Out / min</th><th class="mid">Rate</th></tr></thead>
        <tbody>${queues.map((one) => html`<${QueueRow} key=${one.queue} one=${one}/>`)}</tbody></table>`
        : html`<${Empty}>No queue ${filter || name ? "matches" : "has messages, and no node serves one"}.<//>`}
    <//>
    ${data.breakers.length > 0 && html`<${Card} title="Circuit breakers" count=${data.breakers.length}><ul class="rows">${data.breakers.map((one) => html`<li key=${one.name}>
      <span>${one.name} <${Tag} kind=${one.state === "open" ? "bad" : one.state === "closed" ? "ok" : "warn"}>${one.state}<//></span><span class="when">${one.errors} errors in a row</span></li>`)}</ul><//>`}
    ${(name ? queues : queues.filter((one) => one.dead)).map((one) => html`<${Dead} key=${one.queue} queue=${one.queue} filter=${name ? filter : ""}/>`)}`;
}

function QueueRow({ one }) {
  const waits = one.pending + one.delayed > 0;
  const number = (value, bad) => (value ? html`<span class=${bad ? "problem" : ""}>${value.toLocaleString("en")}</span>` : html`<span class="faint">0</span>`);
  return html`<${Row} href=${queuePage(one.queue)}>
    <td><a class="name" href=${queuePage(one.queue)}>${one.queue}</a></td>
    <td>${one.served ? `${one.served} ${one.served === 1 ? "node" : "nodes"}` : waits ? html`<${Tag} kind="bad">✕ no node serves it<//>` : html`<span class="faint">no node</span>`}</td>
    <td class="num" data-l="pending">${number(one.pending)}</td><td class="num" data-l="delayed">${number(one.delayed)}</td>
    <td class="num" data-l="running">${number(one.running)}</td><td class="num" data-l="dead">${number(one.dead, true)}</td>
    <td class="num" data-l="oldest">${one.oldest_s ? duration(one.oldest_s * 1000) : html`<span class="faint">–</span>`}</td>
    <td class="num mid">${one.in_per_min ?? html`<span class="faint">–</span>`}</td><td class="num mid">${one.out_per_min ?? html`<span class="faint">–</span>`}</td>
    <td class="mid soft">${one.rate ? `${one.rate.used} of ${one.rate.most} in ${duration(one.rate.per_s * 1000)}${one.rate.by_key ? ", by key" : ""}` : html`<span class="faint">no limit</span>`}</td>
  <//>`;
}

function Dead({ queue, filter }) {
  const [picked, setPicked] = useState(new Set());
  const [older, setOlder] = useState({ dead: [], before: undefined });
  const [opened, setOpened] = useState("");
  const { data, error, reload } = useLoad((signal) => get(api("queues", queue, "dead"), { limit: 50 }, signal), "", picked.size ? 0 : REFRESH_S);
  const items = [...(data?.dead || []), ...older.dead].filter((one) => `${one.fire} ${one.task} ${one.reason}`.includes(filter));
  const before = older.before === undefined ? data?.before : older.before;
  const keys = items.map((one) => one.fire).filter((key) => picked.has(key));
  const done = () => {
    setPicked(new Set());
    setOlder({ dead: [], before: undefined });
    reload();
  };
  const pick = (key) => {
    const next = new Set(picked);
    if (!next.delete(key) && next.size < BULK_MAX) next.add(key);
    setPicked(next);
  };
  const more = async () => {
    const answer = await get(api("queues", queue, "dead"), { limit: 50, before });
    setOlder({ dead: [...older.dead, ...answer.dead], before: answer.before });
  };
  return html`<${Card} title="Dead letters of ${queue}" count=${data ? `${items.length}${before ? "+" : ""}` : undefined}>
    ${error && html`<${Problem} error=${error}/>`}
    ${items.length ? html`<table><thead><tr>${MAY_OPERATE && html`<th><span class="sr">Select</span></th>`}<th>Task</th><th>Outcome</th><th>Exception</th><th>Arguments</th><th class="num">Attempts</th><th class="num">Ended</th><th><span class="sr">Actions</span></th></tr></thead>
      <tbody>${items.map((one) => html`<${Letter} key=${one.fire} one=${one} queue=${queue} picked=${picked.has(one.fire)} pick=${pick} done=${done} isOpen=${opened === one.fire} toggle=${() => setOpened(opened === one.fire ? "" : one.fire)}/>`)}</tbody></table>`
      : data && html`<${Empty}>None${filter ? " matches" : ""}.<//>`}
    ${before && html`<div class="more"><button class="small" onClick=${more}>Older</button></div>`}
    ${MAY_OPERATE && items.length > 0 && html`<div class="pick ${picked.size ? "on" : ""}">
      <button class="plain" onClick=${() => setPicked(picked.size ? new Set() : new Set(items.slice(0, BULK_MAX).map((one) => one.fire)))}>${picked.size ? "Select none" : `Select all ${Math.min(items.length, BULK_MAX)}`}</button>
      ${keys.length > 0 && html`<span>${keys.length} selected</span><button onClick=${() => dead(queue, keys, "retry", done)}>Retry ${keys.length}</button>
        <button class="danger" onClick=${() => dead(queue, keys, "forget", done)}>Forget ${keys.length}</button>`}
    </div>`}
  <//>`;
}

function Letter({ one, queue, picked, pick, done, isOpen, toggle }) {
  return html`<${Row} href=${firePage(one.fire)}>
    ${MAY_OPERATE && html`<td class="pickcell"><input type="checkbox" aria-label="select ${one.fire}" checked=${picked} onChange=${() => pick(one.fire)}/></td>`}
    <td class="task"><a class="name" href=${firePage(one.fire)}>${one.task || one.name}</a><div class="sub mono">${one.fire}</div></td>
    <td><${Outcome} of=${one.outcome}/></td>
    <td class="why">${one.reason}${one.output && html`<div><button class="plain small" aria-expanded=${String(isOpen)} onClick=${toggle}>${isOpen ? "hide traceback" : "traceback"}</button>
      ${isOpen && html`<pre class="trace">${pieces(one.output).map((piece) => piece.text).join("")}</pre>`}</div>`}</td>
    <td class="why mono"><div class="args">${one.arguments === null ? "hidden" : JSON.stringify(one.arguments)}</div></td>
    <td class="num" data-l="attempts">${one.attempts}</td><td class="num" data-l="ended"><${Ago} at=${one.over_at}/></td>
    <td class="acts">${MAY_OPERATE && html`<button class="small" onClick=${() => dead(queue, [one.fire], "retry", done)}>Retry</button>
      <button class="small danger" onClick=${() => dead(queue, [one.fire], "forget", done)}>Forget</button>`}</td>
  <//>`;
}
