// Fire: one occurrence of a job: when it was due, started and ended, each attempt with its output, and why.

import { html } from "../vendor/preact.js";
import { MAY_OPERATE, api, firePage, get, page, short } from "../api.js";
import { dead, killFire, runAgain } from "../dialogs.js";
import { live } from "../live.js";
import { Output } from "../output.js";
import { Ago, Card, Empty, FireLink, JobLink, Outcome, Problem, Tag, Took, When, isBad, stateOf, useLoad } from "../parts.js";
import { duration } from "../time.js";

const OPEN_REFRESH_S = 2;

export function Fire({ name: key, open }) {
  const mark = JSON.stringify(live.doc?.marks[key]);
  const loaded = useLoad((signal) => get(api("fires", key), {}, signal), mark, OPEN_REFRESH_S);
  const fire = loaded.data;
  const why = useLoad((signal) => get(api("fires", key, "why"), {}, signal), fire ? fire.state + fire.outcome + fire.attempts.length : "");
  if (!fire) return loaded.error ? html`<${Problem} error=${loaded.error}/>` : html`<${Empty}>Loading…<//>`;
  const state = stateOf(fire);
  const can = (what) => MAY_OPERATE && fire.can.includes(what);
  const attempts = [...fire.attempts].reverse();
  return html`
    <div class="head"><div><div class="crumb"><a href=${page("/fires")}>Fires</a> / <${JobLink} name=${fire.name}/></div><h1 class="mono">${short(key)}</h1></div>
      <div class="acts">
        ${can("kill") && html`<button class="danger" onClick=${() => killFire(key, loaded.reload)}>Kill</button>`}
        ${can("again") && html`<button class="main" onClick=${() => runAgain(key, (fresh) => open(firePage(fresh)))}>Run again</button>`}
        ${can("forget") && html`<button class="danger" onClick=${() => dead(fire.queue, [key], "forget", loaded.reload)}>Forget</button>`}
      </div></div>
    <section class="card">
      <div class="top"><${Outcome} of=${state}/><span class=${isBad(state) ? "problem" : "soft"}>${fire.reason}</span>
        ${fire.cause && fire.cause !== "work" && html`<${Tag}>${fire.cause}<//>`}
        <span class="right soft">${fire.late_ms > 1000 && html`<${Tag} kind="warn">started ${duration(fire.late_ms)} late<//>`}
          ${fire.took_ms !== null && html`took <${Took} ms=${fire.took_ms}/>`}</span></div>
      <${Steps} fire=${fire} state=${state}/>
    </section>
    <div class="cols two">
      <div class="stack">
        ${fire.state === "claimed" && html`<${Attempt} key=${fire.attempt} fire=${key} isRunning=${true}
          attempt=${{ attempt: fire.attempt, node: fire.node, fence: fire.fence, started_at: fire.started_at, outcome: state, reason: "", took_ms: null }}/>`}
        ${attempts.map((attempt) => html`<${Attempt} key=${attempt.attempt} fire=${key} attempt=${attempt}/>`)}
        ${!attempts.length && fire.state !== "claimed" && html`<${Card} title="Attempts" count=${0}><${Empty}>${fire.state === "over" ? "It did not run." : "It has not started yet."}<//><//>`}
      </div>
      <div class="stack">
        <${Card} title="Why"><div class="pad"><ul class="why">${(why.data?.reasons || []).map((reason) => html`<li>${reason}</li>`)}</ul>
          ${why.error && html`<p class="problem">${why.error.message}</p>`}</div><//>
        <${Card} title="Details"><div class="pad"><${Facts} fire=${fire}/></div><//>
        ${(fire.caused_by || fire.followed_by.length > 0) && html`<${Card} title="Related fires"><ul class="rows">
          ${fire.caused_by && html`<li><span>caused by <${FireLink} fire=${fire.caused_by}/></span></li>`}
          ${fire.followed_by.map((one) => html`<li key=${one.fire}><${FireLink} fire=${one.fire}/><span class="when"><${Tag}>${one.origin}<//> <${Outcome} of=${one.state}/></span></li>`)}</ul><//>`}
      </div>
    </div>`;
}

function Steps({ fire, state }) {
  let before = null;
  return html`<ol class="steps">${fire.steps.map(([name, at]) => {
    const since = at && before && Date.parse(at) - Date.parse(before);
    if (at) before = at;
    const cls = !at ? "" : name === "ended" && isBad(state) ? "bad" : name !== "ended" && fire.state === "claimed" && name === "started" ? "run" : "done";
    return html`<li key=${name} class=${cls}><b>${name}</b><span>${at ? html`<${When} at=${at}/>` : "–"}</span>${since > 0 && html`<span class="faint">+${duration(since)}</span>`}</li>`;
  })}</ol>`;
}

function Attempt({ fire, attempt, isRunning = false }) {
  return html`<section class="card"><div class="top"><h2>Attempt ${attempt.attempt}</h2><${Outcome} of=${attempt.outcome}/>
    <span class=${isBad(attempt.outcome) ? "problem" : "soft"}>${attempt.reason}</span>
    <span class="right soft">${attempt.node}, fence ${attempt.fence}${isRunning ? html`, started <${Ago} at=${attempt.started_at}/>` : html`, took <${Took} ms=${attempt.took_ms}/>`}</span></div>
    ${attempt.result !== null && attempt.result !== undefined && html`<div class="pad"><span class="faint">returned </span><code>${JSON.stringify(attempt.result)}</code></div>`}
    <${Output} fire=${fire} attempt=${attempt.attempt} isRunning=${isRunning}/>
  </section>`;
}

function Facts({ fire }) {
  const facts = [["key", fire.fire], ["run id", fire.run_id], ["origin", fire.origin], ["queue", fire.queue], ["lane", fire.lane], ["fence", fire.fence],
    ["revision", fire.revision], ["arguments", fire.arguments === null ? "" : JSON.stringify(fire.arguments)],
    ["instants", fire.instants > 1 ? `${fire.instants}, the first at ${fire.first_at}` : ""], ["start by", fire.start_by], ["due again", fire.run_at]];
  return html`<dl class="facts">${facts.filter(([, value]) => value).map(([name, value]) => html`<dt>${name}</dt><dd class="mono">${value}</dd>`)}</dl>`;
}
