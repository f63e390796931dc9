// Small components that the screens share.

import { Component, html, useEffect, useRef, useState } from "./vendor/preact.js";
import { BULK_MAX, firePage, jobPage, short } from "./api.js";
import { duration, fullText, now, relative, timeText } from "./time.js";

// Draws again only when a value of the list `on` changes: the page is drawn each second.
export class Memo extends Component {
  shouldComponentUpdate(next) {
    return next.on.some((value, i) => value !== this.props.on[i]);
  }

  render({ draw }) {
    return draw();
  }
}

// How an outcome or state looks: a class for its colour and a shape, so that colour is never the only sign.
const LOOKS = {
  succeeded: ["ok", "check"], failed: ["bad", "cross"], rejected: ["bad", "bar"], "timed-out": ["bad", "clock"],
  lost: ["bad", "ask"], missed: ["bad", "diamond"], skipped: ["off", "diamond"], replaced: ["off", "diamond"],
  cancelled: ["off", "bar"], running: ["run", "play"], stopping: ["warn", "play"], waiting: ["off", "ring"], planned: ["off", "ring"],
};
const SHAPES = {
  check: "M2.3 6.6l2.6 2.6 4.8-6.2", cross: "M2.8 2.8l6.4 6.4M9.2 2.8l-6.4 6.4", bar: "M6 1.2a4.8 4.8 0 1 0 .01 0M2.8 9.2l6.4-6.4",
  clock: "M6 1.2a4.8 4.8 0 1 0 .01 0M6 3.4V6l1.8 1.2", ask: "M4 4.2a2 2 0 1 1 2.8 1.9c-.6.3-.8.6-.8 1.3M6 9.6v.2",
  pause: "M3.8 2.2v7.6M8.2 2.2v7.6", again: "M9.8 4.2A4.3 4.3 0 1 0 10.3 6M10.3 1.6v2.9H7.4", alert: "M6 1.6v5.2M6 10v.2",
  diamond: "M6 1.2L10.8 6 6 10.8 1.2 6z", play: "M3.5 2l6 4-6 4z", ring: "M6 2a4 4 0 1 0 .01 0",
};

export const look = (state) => LOOKS[state] || ["off", "ring"];
export const isBad = (state) => look(state)[0] === "bad";

export const Icon = ({ shape }) => html`<svg class="icon" width="12" height="12" viewBox="0 0 12 12" aria-hidden="true">
  <path d=${SHAPES[shape]} fill=${shape === "play" ? "currentColor" : "none"} stroke="currentColor" stroke-width="1.7"
    stroke-linecap="round" stroke-linejoin="round"/></svg>`;

export function Outcome({ of }) {
  const [cls, shape] = look(of);
  return html`<span class="out ${cls}"><${Icon} shape=${shape}/>${of}</span>`;
}

// The state of a fire as the table of fires shows it.
export function stateOf(fire) {
  if (fire.outcome) return fire.outcome;
  if (fire.state === "claimed") return fire.stop ? "stopping" : "running";
  return Date.parse(fire.due_at) > now() ? "planned" : "waiting";
}

const LETTERS = {
  s: "succeeded", f: "failed", j: "rejected", t: "timed-out", k: "skipped", e: "replaced",
  l: "lost", m: "missed", c: "cancelled", r: "running", w: "waiting",
};
const SPARK_MAX = 20;

export const Spark = ({ of }) => html`<${Memo} on=${[of]} draw=${() => spark(of)}/>`;

function spark(of) {
  const states = [...of].map((letter) => LETTERS[letter]);
  const counts = {};
  for (const state of states) counts[state] = (counts[state] || 0) + 1;
  const label = Object.entries(counts).map(([state, count]) => `${count} ${state}`).join(", ") || "no fires yet";
  return html`<svg class="spark" width="100" height="16" viewBox="0 0 100 16" role="img" aria-label=${label}>
    <title>${`newest fires: ${label}`}</title>
    ${states.map((state, i) => {
      const x = (SPARK_MAX - states.length + i) * 5;
      const cls = look(state)[0];
      if (cls === "bad") return html`<rect x=${x} y="0" width="4" height="16" rx="1" class="m-bad"/>`;
      if (cls === "off") return html`<rect x=${x + 0.75} y="8.5" width="2.5" height="4" class="m-off"/>`;
      return html`<rect x=${x} y="5" width="4" height="8" rx="1" class=${cls === "ok" ? "m-ok" : "m-run"}/>`;
    })}
  </svg>`;
}

export const When = ({ at }) =>
  at ? html`<time datetime=${at} title=${fullText(Date.parse(at))}>${timeText(at)}</time>` : html`<span class="faint">–</span>`;
export const Ago = ({ at }) =>
  at ? html`<time datetime=${at} title=${fullText(Date.parse(at))}>${relative(at)}</time>` : html`<span class="faint">–</span>`;
export const Took = ({ ms }) => html`<span class=${ms === null || ms === undefined ? "faint" : ""}>${duration(ms)}</span>`;

export const JobLink = ({ name }) => html`<a class="name nowrap" href=${jobPage(name)}>${short(name)}</a>`;
export const FireLink = ({ fire, text }) => html`<a class="mono" href=${firePage(fire)}>${text || short(fire)}</a>`;

export const Tag = ({ kind = "", children }) => html`<span class="tag ${kind}">${children}</span>`;
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;
// Text in which `commands` stand between backticks.
export const Words = ({ text }) => text.split("`").map((part, i) => (i % 2 ? html`<code>${part}</code>` : part));
export const Banner = ({ kind, sign = "!", role, children }) => html`<div class="verdict ${kind}" role=${role}>
  <span class="sign" aria-hidden="true">${sign}</span><div class="say">${children}</div></div>`;
export const Problem = ({ error }) => html`<${Banner} kind="bad keep" role="alert"><${Words} text=${error.message}/><//>`;

const STATES = { failing: ["bad", "cross"], late: ["bad", "clock"], paused: ["warn", "pause"], running: ["run", "play"] };
export const Paused = () => html`<${Tag} kind="warn"><${Icon} shape="pause"/>paused<//>`;
export const States = ({ of }) =>
  of ? of.split(", ").map((state) => html`<${Tag} kind=${STATES[state]?.[0]}>
    ${STATES[state] && html`<${Icon} shape=${STATES[state][1]}/>`}${state}<//> `) : "";

// Names and values; empty values are left out.
export const Facts = ({ facts }) => html`<dl class="facts">${Object.entries(facts).filter(([, value]) => value)
  .map(([name, value]) => html`<dt>${name}</dt><dd class="mono">${value}</dd>`)}</dl>`;

export function Card({ title, count, right, children }) {
  return html`<section class="card">
    <div class="top"><h2>${title}${count === undefined ? "" : html`<span class="n">${count}</span>`}</h2>
      ${right && html`<div class="right">${right}</div>`}</div>
    ${children}
  </section>`;
}

// Without rows, `none` is shown.
export const Table = ({ head, rows, none }) => (rows.length
  ? html`<table><thead><tr>${head}</tr></thead><tbody>${rows}</tbody></table>` : html`<${Empty}>${none}<//>`);

// A row that opens a page: by a click beside its links, or by Enter.
export const Row = ({ href, job, children }) => html`<tr tabindex="-1" data-href=${href} data-job=${job}>${children}</tr>`;

// Loads a document when `key` changes, and again every `every` seconds, which may depend on the document: 0 is never.
export function useLoad(load, key, every = 0) {
  const [state, setState] = useState({ data: null, error: null });
  const again = useRef(() => {});
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    let newest = null;
    const run = async () => {
      if (!document.hidden || !newest) {
        try {
          newest = await load(stop.signal);
          if (!stop.signal.aborted) setState({ data: newest, error: null });
        } catch (error) {
          if (!stop.signal.aborted) setState((old) => ({ data: old.data, error }));
        }
      }
      const seconds = typeof every === "function" ? every(newest) : every;
      clearTimeout(timer);
      if (seconds && !stop.signal.aborted) timer = setTimeout(run, seconds * 1000);
    };
    again.current = run;
    run();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [key, every]);
  return { ...state, reload: () => again.current() };
}

// A list in pages: the first one, kept current, and the older ones that were asked for.
export function usePages(load, every) {
  const [older, setOlder] = useState({ pages: [], before: undefined, error: null });
  const first = useLoad((signal) => load({}, signal), "", every);
  const before = older.before === undefined ? first.data?.before : older.before;
  const more = async () => {
    try {
      const page = await load({ before });
      setOlder({ pages: [...older.pages, page], before: page.before, error: null });
    } catch (error) {
      setOlder({ ...older, error });
    }
  };
  const reload = () => {
    setOlder({ pages: [], before: undefined, error: null });
    first.reload();
  };
  const pages = first.data ? [first.data, ...older.pages] : [];
  return { pages, before, more, reload, error: first.error || older.error };
}

// What the checkboxes of a table have selected, and the bar below it.
export function usePicked() {
  const [picked, setPicked] = useState(new Set());
  const pick = (key) => {
    const next = new Set(picked);
    if (!next.delete(key) && next.size < BULK_MAX) next.add(key);
    setPicked(next);
  };
  const clear = () => setPicked(new Set());
  const all = (keys) => setPicked(new Set(keys.slice(0, BULK_MAX)));
  return { picked, pick, clear, all };
}

export const PickCell = ({ name, choice }) => html`<td class="pickcell"><input type="checkbox" aria-label="select ${name}"
  checked=${choice.picked.has(name)} onChange=${() => choice.pick(name)}/></td>`;

export function PickBar({ keys, choice, children }) {
  const count = choice.picked.size;
  return html`<button class="plain" onClick=${() => (count ? choice.clear() : choice.all(keys))}>
    ${count ? "Select none" : `Select all ${Math.min(keys.length, BULK_MAX)}`}</button>
    ${count > 0 && html`<b>${count} selected</b>`}${children}`;
}
