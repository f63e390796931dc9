// Jobs: the list of jobs, and one job.

import { html, useState } from "../vendor/preact.js";
import { MAY_OPERATE, api, firePage, get, jobPage, page, query, short } from "../api.js";
import { pauseJob, resumeJob, runJob } from "../dialogs.js";
import { live } from "../live.js";
import { Ago, Banner, Card, Empty, Facts, Icon, Memo, Outcome, Paused, Problem, Row, Spark, States, Table, Tag, Took, When, useLoad } from "../parts.js";
import { duration, relative } from "../time.js";
import { Timeline, Windows, timelineRows } from "../timeline.js";
import { FireTable, upToNow } from "./fires.js";

const FILTERS = ["", "failing", "late", "running", "paused"];
const MORE = 200; // jobs of one further page
const HISTORY = 25;
const NEXT = 10;
const JOB_HEAD = html`<th>Job</th><th>State</th><th>Newest fires</th><th>Last</th><th>Next</th>
  <th class="num mid">p50</th><th class="num mid">p95</th><th><span class="sr">Actions</span></th>`;

export function Jobs({ doc, filter, open }) {
  const [more, setMore] = useState([]);
  const wanted = query().get("state") || "";
  const jobs = [...Object.entries(doc.jobs), ...more.map((job) => [job.name, job])]
    .filter(([name, job]) => name.includes(filter) && (!wanted || job.state.includes(wanted)));
  const left = doc.jobs_left_out - more.length;
  const load = async () => {
    const names = [...Object.keys(doc.jobs), ...more.map((job) => job.name)].sort();
    setMore([...more, ...(await get(api("jobs"), { after: names[names.length - 1], limit: MORE })).jobs]);
  };
  const choice = html`<span class="seg" role="group" aria-label="state">${FILTERS.map((state) => html`
    <button aria-pressed=${String(wanted === state)} onClick=${() => open(page("/jobs", { state }))}>${state || "all"}</button>`)}</span>`;
  const row = ([name, job]) => html`<${Memo} key=${name} draw=${() => jobRow(name, job)}
    on=${[job, relative(job.next_due_at), relative(job.last?.over_at)]}/>`;
  return html`<${Card} title="Jobs" count=${jobs.length} right=${choice}>
    <${Table} head=${JOB_HEAD} rows=${jobs.map(row)} none="No job ${filter || wanted ? "matches: clear the filter" : "is known yet"}."/>
    ${left > 0 && html`<div class="more"><button class="small" onClick=${load}>Show more</button>
      <span class="faint">${left} more jobs</span></div>`}
  <//>`;
}

function jobRow(name, job) {
  const { last } = job;
  const [verb, change] = job.paused ? ["Resume", resumeJob] : ["Pause", pauseJob];
  return html`<${Row} href=${jobPage(name)} job=${name}>
    <td><a class="name" href=${jobPage(name)}>${short(name)}</a>
      <div class="sub">${job.schedule || "not in a manifest here"}</div></td>
    <td><${States} of=${job.state}/></td>
    <td><${Spark} of=${job.spark}/></td>
    <td data-l="last">${last
      ? html`<a href=${firePage(last.fire)}><${Outcome} of=${last.outcome}/></a> <span class="sub"><${Ago} at=${last.over_at}/></span>`
      : html`<span class="faint">never</span>`}</td>
    <td data-l="next"><${Ago} at=${job.next_due_at}/></td>
    <td class="num mid"><${Took} ms=${job.p50_ms}/></td>
    <td class="num mid"><${Took} ms=${job.p95_ms}/></td>
    <td class="acts">${MAY_OPERATE && html`<button class="small" onClick=${() => runJob(name)}>Run</button>
      <button class="small" onClick=${() => change(name)}>${verb}</button>`}</td>
  <//>`;
}

export function Job({ name, open }) {
  // The live picture says when the job changed; only then is its page loaded again.
  const known = live.doc?.jobs[name];
  const change = JSON.stringify(known && [known.last, known.running, known.paused, known.state]);
  const job = useLoad((signal) => get(api("jobs", name), {}, signal), change);
  const next = useLoad((signal) => get(api("jobs", name, "next"), { limit: NEXT }, signal), known?.next_due_at);
  const fires = useLoad((signal) => get(api("fires"), upToNow({ job: name, limit: HISTORY }), signal), change);
  if (!job.data) return job.error ? html`<${Problem} error=${job.error}/>` : html`<${Empty}>Loading…<//>`;
  const { data } = job;
  const allFires = html`<a class="soft" href=${page("/fires", { job: name })}>all fires of this job</a>`;
  return html`
    <div class="head">
      <div><div class="crumb"><a href=${page("/jobs")}>Jobs</a></div><h1>${short(name)}</h1></div>
      <${States} of=${data.state}/>
      <${Actions} name=${name} can=${data.can} reload=${job.reload}/>
    </div>
    ${data.description && html`<p class="soft">${data.description}</p>`}
    ${data.words && html`<p class="soft words">Runs ${data.words}.</p>`}
    ${data.paused && html`<${PauseBanner} pause=${data.paused}/>`}
    <${Numbers} job=${data}/>
    ${known && html`<${Card} title="Timeline" right=${html`<${Windows}/>`}>
      <${Timeline} rows=${timelineRows(live.doc, [name])} window=${live.window} step=${live.doc.timeline.step_s} open=${open}/><//>`}
    <div class="cols two">
      <${Card} title="History" right=${allFires}>
        ${fires.error && html`<${Problem} error=${fires.error}/>`}
        ${fires.data?.fires.length > 0 && html`<${FireTable} fires=${fires.data.fires} withJob=${false}/>`}
        ${fires.data?.fires.length === 0 && html`<${Empty}>It has not fired yet.<//>`}
      <//>
      <div class="stack"><${Next} next=${next}/>${data.policy && html`<${Policy} policy=${data.policy}/>`}<${Definition} job=${data}/></div>
    </div>`;
}

function Actions({ name, can, reload }) {
  return html`<div class="acts">
    ${can.includes("fire") && html`<button class="main" onClick=${() => runJob(name, reload)}>Run now</button>`}
    ${can.includes("pause") && html`<button onClick=${() => pauseJob(name, reload)}>Pause</button>`}
    ${can.includes("resume") && html`<button onClick=${() => resumeJob(name, reload)}>Resume</button>`}
  </div>`;
}

const PauseBanner = ({ pause }) => html`<${Banner} kind="warn" sign=${html`<${Icon} shape="pause"/>`}>
  Paused${pause.by && ` by ${pause.by}`}${pause.reason && `: ${pause.reason}`}
  ${pause.until ? html` – until <${When} at=${pause.until}/>` : " – until it is resumed"}
<//>`;

function Numbers({ job }) {
  const { last } = job;
  return html`<div class="stats few">
    <div><b>${last ? html`<${Outcome} of=${last.outcome}/>` : "–"}</b><span>last, <${Ago} at=${last?.over_at}/></span></div>
    <div><b><${Ago} at=${job.succeeded_at}/></b><span>last success</span></div>
    <div><b><${Ago} at=${job.next_due_at}/></b><span>next</span></div>
    <div><b>${job.running}</b><span>running</span></div>
    <div><b><${Took} ms=${job.p50_ms}/></b><span>p50</span></div>
    <div><b><${Took} ms=${job.p95_ms}/></b><span>p95</span></div>
    <div><b><${Spark} of=${job.spark}/></b><span>newest fires</span></div>
  </div>`;
}

function Next({ next }) {
  const local = (one) => (one.timezone === "UTC" ? html`<${Ago} at=${one.due_at}/>` : `${one.local.slice(11, 16)} ${one.timezone}`);
  return html`<${Card} title="Next instants">
    ${next.data?.length > 0 && html`<ul class="rows">${next.data.map((one) => html`<li key=${one.due_at}>
      <span><${When} at=${one.due_at}/>${one.paused && !one.note && html` <${Paused}/>`}</span>
      <span class="when">${local(one)}</span>
      ${one.note && html`<span class="note">${one.note}</span>`}</li>`)}</ul>`}
    ${next.data?.length === 0 && html`<${Empty}>None is planned from here.<//>`}
    ${next.error && html`<${Empty}>${next.error.message}<//>`}
  <//>`;
}

const seconds = (value) => (value ? duration(value * 1000) : "none");

// What holds for its fires, with defaults; the definition has only what was written.
function Policy({ policy }) {
  const facts = {
    concurrency: policy.concurrency === "Allow" ? "Allow" : `${policy.concurrency}, at most ${policy.max_running} running`,
    timeout: seconds(policy.timeout_s),
    attempts: policy.max_attempts,
    "after an outage": policy.catch_up,
    "start deadline": seconds(policy.start_deadline_s),
    "if its node is lost": policy.on_lost,
    "late after": policy.late_after_s ? seconds(policy.late_after_s) : "",
  };
  return html`<${Card} title="Policy in force"><div class="pad"><${Facts} facts=${facts}/></div><//>`;
}

function Definition({ job }) {
  const fields = job.queue ? [...job.fields, ["queue", job.queue]] : job.fields;
  return html`<${Card} title="Definition"><div class="pad"><dl class="facts">
    ${fields.map(([field, value]) => html`<dt>${field}</dt><dd class="mono">${value}</dd>`)}
    <dt>held by</dt><dd>${job.nodes.length ? job.nodes.join(", ") : "no living node"}</dd>
    ${job.tags.length > 0 && html`<dt>tags</dt><dd>${job.tags.map((tag) => html`<${Tag}>${tag}<//> `)}</dd>`}
  </dl></div><//>`;
}
