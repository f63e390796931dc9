// Fire: one occurrence of a job: when it was due, started and ended, each attempt with its output, and why.

import { html } from "../vendor/preact.js";
import { MAY_OPERATE, api, firePage, get, page, short } from "../api.js";
import { dead, killFire, runAgain } from "../dialogs.js";
import { live } from "../live.js";
import { Output } from "../output.js";
import { Ago, Card, Empty, Facts, FireLink, JobLink, Outcome, Problem, Tag, Took, When, isBad, stateOf, useLoad } from "../parts.js";
import { duration } from "../time.js";

const refreshS = (fire) => (fire?.state === "over" ? 10 : 2); // hooks may follow when it is over
const LATE_MS = 1000; // later than this is said

export function Fire({ name: key, open }) {
  const mark = JSON.stringify(live.doc?.marks[key]);
  const loaded = useLoad((signal) => get(api("fires", key), {}, signal), mark, refreshS);
  const fire = loaded.data;
  const change = fire && fire.state + fire.outcome + fire.attempts.length;
  const why = useLoad((signal) => get(api("fires", key, "why"), {}, signal), change);
  if (!fire) return loaded.error ? html`<${Problem} error=${loaded.error}/>` : html`<${Empty}>Loading…<//>`;
  const state = stateOf(fire);
  return html`
    <div class="head">
      <div><div class="crumb"><a href=${page("/fires")}>Fires</a> / <${JobLink} name=${fire.name}/></div>
        <h1 class="mono">${short(key)}</h1></div>
      <${Actions} fire=${fire} open=${open} reload=${loaded.reload}/>
    </div>
    <section class="card">
      <div class="top"><${Outcome} of=${state}/><span class=${isBad(state) ? "problem" : "soft"}>${fire.reason}</span>
        ${fire.cause && fire.cause !== "work" && html`<${Tag}>${fire.cause}<//>`}
        <span class="right soft">
          ${fire.late_ms > LATE_MS && html`<${Tag} kind="warn">started ${duration(fire.late_ms)} late<//>`}
          ${fire.took_ms !== null && html`took <${Took} ms=${fire.took_ms}/>`}</span></div>
      <${Steps} fire=${fire} state=${state}/>
    </section>
    <div class="cols two">
      <div class="stack"><${Attempts} fire=${fire} state=${state}/></div>
      <div class="stack">
        <${Card} title="Why"><div class="pad">
          <ul class="why">${(why.data?.reasons || []).map((reason) => html`<li>${reason}</li>`)}</ul>
          ${why.error && html`<p class="problem">${why.error.message}</p>`}</div><//>
        <${Card} title="Details"><div class="pad"><${Details} fire=${fire}/></div><//>
        ${(fire.caused_by || fire.followed_by.length > 0) && html`<${Related} fire=${fire}/>`}
      </div>
    </div>`;
}

function Actions({ fire, open, reload }) {
  const key = fire.fire;
  const can = (what) => MAY_OPERATE && fire.can.includes(what);
  return html`<div class="acts">
    ${can("kill") && html`<button class="danger" onClick=${() => killFire(key, reload)}>Kill</button>`}
    ${can("retry") && html`<button class="main" onClick=${() => runAgain(key, (fresh) => open(firePage(fresh)))}>Retry</button>`}
    ${can("again") && html`<button class="main" onClick=${() => runAgain(key, (fresh) => open(firePage(fresh)))}>Run again</button>`}
    ${can("forget") && html`<button class="danger" onClick=${() => dead(fire.queue, [key], "forget", reload)}>Forget</button>`}
  </div>`;
}

function Steps({ fire, state }) {
  let before = null;
  return html`<ol class="steps">${fire.steps.map(([name, at]) => {
    const since = at && before && Date.parse(at) - Date.parse(before);
    if (at) before = at;
    let cls = at ? "done" : "";
    if (at && name === "ended" && isBad(state)) cls = "bad";
    if (at && name === "started" && fire.state === "claimed") cls = "run";
    return html`<li key=${name} class=${cls}><b>${name}</b><span><${When} at=${at}/></span>
      ${since > 0 && html`<span class="faint">+${duration(since)}</span>`}</li>`;
  })}</ol>`;
}

function Attempts({ fire, state }) {
  const past = [...fire.attempts].reverse();
  const running = fire.state === "claimed" && {
    attempt: fire.attempt, node: fire.node, fence: fire.fence, started_at: fire.started_at, outcome: state, result: null,
  };
  if (!past.length && !running) {
    const text = fire.state === "over" ? "It did not run." : "It has not started yet.";
    return html`<${Card} title="Attempts" count=${0}><${Empty}>${text}<//><//>`;
  }
  return html`
    ${running && html`<${Attempt} key=${running.attempt} fire=${fire.fire} attempt=${running} isRunning=${true}/>`}
    ${past.map((attempt) => html`<${Attempt} key=${attempt.attempt} fire=${fire.fire} attempt=${attempt}/>`)}`;
}

function Attempt({ fire, attempt, isRunning = false }) {
  const when = isRunning ? html`started <${Ago} at=${attempt.started_at}/>` : html`took <${Took} ms=${attempt.took_ms}/>`;
  return html`<section class="card">
    <div class="top"><h2>Attempt ${attempt.attempt}</h2><${Outcome} of=${attempt.outcome}/>
      <span class=${isBad(attempt.outcome) ? "problem" : "soft"}>${attempt.reason}</span>
      <span class="right soft">${attempt.node}, fence ${attempt.fence}, ${when}</span></div>
    ${attempt.result !== null && html`<div class="pad"><span class="faint">returned </span><code>${JSON.stringify(attempt.result)}</code></div>`}
    <${Output} fire=${fire} attempt=${attempt.attempt} isRunning=${isRunning}/>
  </section>`;
}

const Related = ({ fire }) => html`<${Card} title="Related fires"><ul class="rows">
  ${fire.caused_by && html`<li><span>caused by <${FireLink} fire=${fire.caused_by}/></span></li>`}
  ${fire.followed_by.map((one) => html`<li key=${one.fire}><${FireLink} fire=${one.fire}/>
    <span class="when"><${Tag}>${one.origin}<//> <${Outcome} of=${one.state}/></span></li>`)}</ul><//>`;

function Details({ fire }) {
  const facts = {
    key: fire.fire,
    "run id": fire.run_id,
    origin: fire.origin,
    queue: fire.queue,
    lane: fire.lane,
    fence: fire.fence,
    revision: fire.revision,
    arguments: fire.arguments === null ? "" : JSON.stringify(fire.arguments),
    instants: fire.instants > 1 ? `${fire.instants}, the first at ${fire.first_at}` : "",
    "start by": fire.start_by,
    "due again": fire.run_at,
  };
  return html`<${Facts} facts=${facts}/>`;
}
