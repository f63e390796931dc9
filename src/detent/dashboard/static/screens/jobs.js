// Jobs: the list of jobs, and one job.

import { html, useState } from "../vendor/preact.js";
import { MAY_OPERATE, api, firePage, get, jobPage, page, query, short } from "../api.js";
import { pauseJob, resumeJob, runJob } from "../dialogs.js";
import { live } from "../live.js";
import { Ago, Card, Empty, Icon, Memo, Outcome, Paused, Problem, Row, Spark, States, Tag, Took, When, useLoad } from "../parts.js";
import { relative } from "../time.js";
import { Timeline, Windows, timelineRows } from "../timeline.js";
import { FireTable, upToNow } from "./fires.js";

export function Jobs({ doc, filter, open }) {
  const [more, setMore] = useState([]);
  const wanted = query().get("state") || "";
  const jobs = [...Object.entries(doc.jobs), ...more.map((job) => [job.name, job])]
    .filter(([name, job]) => name.includes(filter) && (!wanted || job.state.includes(wanted)));
  const left = doc.jobs_left_out - more.length;
  const load = async () => {
    const names = [...Object.keys(doc.jobs), ...more.map((job) => job.name)].sort();
    setMore([...more, ...(await get(api("jobs"), { after: names[names.length - 1], limit: 200 })).jobs]);
  };
  const choice = html`<span class="seg" role="group" aria-label="state">${["", "failing", "late", "running", "paused"].map((state) =>
    html`<button type="button" aria-pressed=${String(wanted === state)} onClick=${() => open(page("/jobs", { state }))}>${state || "all"}</button>`)}</span>`;
  return html`<${Card} title="Jobs" count=${jobs.length} right=${choice}>
    ${jobs.length ? html`<table>
      <thead><tr><th>Job</th><th>State</th><th>Newest fires</th><th>Last</th><th>Next</th><th class="num mid">p50</th><th class="num mid">p95</th><th><span class="sr">Actions</span></th></tr></thead>
      <tbody>${jobs.map(([name, job]) => html`<${Memo} key=${name} on=${[job, relative(job.next_due_at), relative(job.last?.over_at)]} draw=${() => jobRow(name, job)}/>`)}</tbody>
    </table>` : html`<${Empty}>No job ${filter || wanted ? "matches: clear the filter" : "is known yet"}.<//>`}
    ${left > 0 && html`<div class="more"><button class="small" onClick=${load}>Show more</button><span class="faint">${left} more jobs</span></div>`}
  <//>`;
}

function jobRow(name, job) {
  const { last } = job;
  return html`<${Row} href=${jobPage(name)} job=${name}>
    <td><a class="name" href=${jobPage(name)}>${short(name)}</a><div class="sub">${job.schedule || "not in a manifest here"}</div></td>
    <td><${States} of=${job.state}/></td>
    <td><${Spark} of=${job.spark}/></td>
    <td data-l="last">${last ? html`<a href=${firePage(last.fire)}><${Outcome} of=${last.outcome}/></a> <span class="sub"><${Ago} at=${last.over_at}/></span>` : html`<span class="faint">never</span>`}</td>
    <td data-l="next"><${Ago} at=${job.next_due_at}/></td>
    <td class="num mid" data-l="p50"><${Took} ms=${job.p50_ms}/></td>
    <td class="num mid" data-l="p95"><${Took} ms=${job.p95_ms}/></td>
    <td class="acts">${MAY_OPERATE && html`<button class="small" onClick=${() => runJob(name)}>Run</button>
      ${job.paused ? html`<button class="small" onClick=${() => resumeJob(name)}>Resume</button>` : html`<button class="small" onClick=${() => pauseJob(name)}>Pause</button>`}`}</td>
  <//>`;
}

export function Job({ name, open }) {
  // The live picture says when the job changed; only then is its page loaded again.
  const known = live.doc?.jobs[name];
  const change = JSON.stringify(known && [known.last, known.running, known.paused, known.state]);
  const job = useLoad((signal) => get(api("jobs", name), {}, signal), change);
  const next = useLoad((signal) => get(api("jobs", name, "next"), { limit: 10 }, signal), JSON.stringify(known?.next_due_at));
  const fires = useLoad((signal) => get(api("fires"), upToNow({ job: name, limit: 25 }), signal), change);
  if (!job.data) return job.error ? html`<${Problem} error=${job.error}/>` : html`<${Empty}>Loading…<//>`;
  const { data } = job;
  const can = (what) => data.can.includes(what);
  return html`
    <div class="head"><div><div class="crumb"><a href=${page("/jobs")}>Jobs</a></div><h1>${short(name)}</h1></div>
      <${States} of=${data.state}/>
      <div class="acts">
        ${can("fire") && html`<button class="main" onClick=${() => runJob(name, job.reload)}>Run now</button>`}
        ${can("pause") && html`<button onClick=${() => pauseJob(name, job.reload)}>Pause</button>`}
        ${can("resume") && html`<button onClick=${() => resumeJob(name, job.reload)}>Resume</button>`}
      </div></div>
    ${data.description && html`<p class="soft">${data.description}</p>`}
    ${data.paused && html`<div class="verdict warn"><span class="sign" aria-hidden="true"><${Icon} shape="pause"/></span><p class="say">Paused${data.paused.by && ` by ${data.paused.by}`}${data.paused.reason && `: ${data.paused.reason}`}
      ${data.paused.until ? html` – until <${When} at=${data.paused.until}/>` : " – until it is resumed"}</p></div>`}
    <div class="stats">
      <div><b>${data.last ? html`<${Outcome} of=${data.last.outcome}/>` : "–"}</b><span>last, <${Ago} at=${data.last?.over_at}/></span></div>
      <div><b><${Ago} at=${data.succeeded_at}/></b><span>last success</span></div>
      <div><b><${Ago} at=${data.next_due_at}/></b><span>next</span></div>
      <div><b>${data.running}</b><span>running</span></div>
      <div><b><${Took} ms=${data.p50_ms}/></b><span>p50</span></div>
      <div><b><${Took} ms=${data.p95_ms}/></b><span>p95</span></div>
      <div><b><${Spark} of=${data.spark}/></b><span>newest fires</span></div>
    </div>
    ${known && html`<${Card} title="Timeline" right=${html`<${Windows}/>`}><${Timeline} rows=${timelineRows(live.doc, [name])} window=${live.window} step=${live.doc.timeline.step_s} open=${open}/><//>`}
    <div class="cols two">
      <${Card} title="History" right=${html`<a class="soft" href=${page("/fires", { job: name })}>all fires of this job</a>`}>
        ${fires.error && html`<${Problem} error=${fires.error}/>`}
        ${fires.data && (fires.data.fires.length ? html`<${FireTable} fires=${fires.data.fires} withJob=${false}/>` : html`<${Empty}>It has not fired yet.<//>`)}
      <//>
      <div class="stack">
        <${Card} title="Next instants">
          ${next.data?.length ? html`<ul class="rows">${next.data.map((one) => html`<li key=${one.due_at}><span><${When} at=${one.due_at}/>${one.paused && html` <${Paused}/>`}</span>
            <span class="when">${one.timezone === "UTC" ? html`<${Ago} at=${one.due_at}/>` : `${one.local.slice(11, 16)} ${one.timezone}`}</span>
            ${one.note && html`<span class="note">${one.note}</span>`}</li>`)}</ul>` : html`<${Empty}>${next.error ? next.error.message : "None is planned from here."}<//>`}
        <//>
        <${Card} title="Definition">
          <div class="pad"><dl class="facts">${data.fields.map(([field, value]) => html`<dt>${field}</dt><dd class="mono">${value}</dd>`)}
            <dt>queue</dt><dd class="mono">${data.queue}</dd>
            <dt>held by</dt><dd>${data.nodes.length ? data.nodes.join(", ") : "no living node"}</dd>
            ${data.tags.length > 0 && html`<dt>tags</dt><dd>${data.tags.map((tag) => html`<${Tag}>${tag}<//> `)}</dd>`}</dl></div>
        <//>
      </div>
    </div>`;
}
