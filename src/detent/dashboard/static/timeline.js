// The timeline: one row for each job, past fires as bars and diamonds, coming instants as rings.
// Marks are placed relative to a fixed instant; the group around them moves with time, so that a row without
// changes is not drawn again.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { firePage, jobPage, page, short } from "./api.js";
import { live, setWindow } from "./live.js";
import { duration, minuteText, now, timeText } from "./time.js";
import { Icon, Memo, isBad, look } from "./parts.js";

const ROW = 24;
const TOP = 24;
const RING = 7; // pixels between two coming instants: closer ones are left out
const NEAR_PX = 9; // how far from a mark the pointer may be
const AHEAD = 0.18; // part of the width for what comes next
const STEPS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600];
const origin = Math.floor(now() / 1000);

const bar = (x, width, height, cls) =>
  html`<rect x=${x} y=${(ROW - height) / 2} width=${Math.max(width, 2.6)} height=${height} rx="1.5" class=${cls}/>`;

function Mark({ mark, scale, at }) {
  const place = (t) => (t - origin) * scale;
  const [cls] = look(mark.state);
  const middle = ROW / 2;
  if (!mark.attempts.length) {
    const x = place(mark.due);
    if (mark.state === "waiting") return html`<circle cx=${x} cy=${middle} r="3" class="m-next"/>`;
    return html`<path d="M${x} ${middle - 4.6}l4.6 4.6-4.6 4.6-4.6-4.6z" class=${cls === "bad" ? "m-bad" : "m-off"}/>`;
  }
  const start = place(mark.attempts[0][0]);
  const wait = start - place(mark.due);
  return html`<g>
    ${wait > 3 && html`<path d="M${start - wait} ${middle}H${start}" class="m-next"/>`}
    ${mark.attempts.map(([from, to, outcome], i) => {
      const x = place(from);
      const width = place(to ?? at) - x;
      if (to === null) return bar(x, width, 12, "hatch");
      if (!isBad(outcome)) return bar(x, width, 10, outcome === "succeeded" ? "m-ok" : "m-off");
      if (i < mark.attempts.length - 1 || !isBad(mark.state)) return bar(x, Math.max(width, 4), 10, "m-try");
      const cross = width >= 9 && `M${x + width / 2 - 2.5} ${middle - 2.5}l5 5m0-5l-5 5`;
      return html`<g>${bar(x, width, 17, "m-bad")}${cross && html`<path d=${cross} class="m-x"/>`}</g>`;
    })}
  </g>`;
}

const total = (counts, wanted) =>
  Object.entries(counts).reduce((sum, [state, count]) => sum + (wanted(look(state)[0]) ? count : 0), 0);

// A heat strip: the more fires, the darker; failures rise from the bottom.
function Buckets({ buckets, step, scale }) {
  const most = Math.max(1, ...buckets.map(([, counts]) => total(counts, () => true)));
  const width = Math.max(step * scale - 1, 1.5);
  return html`<g>${buckets.map(([at, counts]) => {
    const all = total(counts, () => true);
    const bad = total(counts, (cls) => cls === "bad");
    const off = total(counts, (cls) => cls === "off");
    const x = (at - origin) * scale;
    const height = bad && Math.max(5, (16 * bad) / all);
    return html`<g>
      ${all > bad + off && html`<rect x=${x} y="4" width=${width} height="16" class="m-ok" opacity=${0.3 + (0.7 * all) / most}/>`}
      ${off > 0 && html`<rect x=${x} y="4" width=${width} height="3.5" class="m-rest"/>`}
      ${bad > 0 && html`<rect x=${x} y=${20 - height} width=${width} height=${height} class="m-bad"/>`}
    </g>`;
  })}</g>`;
}

function Axis({ from, until, at, width, place, height }) {
  const span = until - from;
  const step = STEPS.find((one) => span / one <= Math.max(3, place(until) / 95)) || STEPS[STEPS.length - 1];
  const shift = -new Date(from * 1000).getTimezoneOffset() * 60;
  const hasRoom = (x) => x > 18 && x < width - 18 && Math.abs(x - place(at)) > 34;
  const ticks = [];
  for (let t = Math.ceil((from + shift) / step) * step - shift; t < until; t += step) ticks.push(t);
  return html`<g>${ticks.map((t) => html`<g>
    <path d="M${place(t)} ${TOP - 4}V${height}" class="grid"/>
    ${hasRoom(place(t)) && html`<text x=${place(t)} y="13" text-anchor="middle">${minuteText(t * 1000)}</text>`}
  </g>`)}</g>`;
}

// What can be pointed at in a row: {key, from, to, pad, href, title, words, reason}, with instants in Unix seconds.
function items(row, step, at) {
  if (!row.buckets) return row.marks.map((mark) => markItem(mark, at));
  return row.buckets.map(([from, counts]) => ({
    key: from, from, to: from + step, pad: 1,
    href: page("/fires", { job: row.name, from: iso(from), to: iso(from + step) }),
    title: `${short(row.name)} ${minuteText(from * 1000)}–${minuteText((from + step) * 1000)}`,
    words: Object.entries(counts).map(([state, count]) => `${count} ${state}`).join(", "),
  }));
}

function markItem(mark, at) {
  const first = mark.attempts[0];
  const last = mark.attempts[mark.attempts.length - 1];
  const ran = mark.attempts.filter(([, to]) => to !== null);
  const took = ran.reduce((sum, [from, to]) => sum + (to - from), 0);
  const late = first && (first[0] - mark.due) * 1000;
  return {
    key: mark.key, from: first ? first[0] : mark.due, to: last ? last[1] ?? at : mark.due, pad: 5,
    href: firePage(mark.key),
    title: `${short(mark.job)} ${timeText(iso(mark.due))}`,
    words: [
      mark.state,
      mark.attempts.length > 1 && `${mark.attempts.length} attempts`,
      ran.length > 0 && `took ${duration(took * 1000)}`,
      late > 1000 && `started ${duration(late)} late`,
    ].filter(Boolean).join(", "),
    reason: mark.reason,
  };
}

const iso = (seconds) => new Date(seconds * 1000).toISOString();

// Leaves out instants that would be drawn closer together than so many seconds.
function apart(instants, seconds) {
  let last = -Infinity;
  return instants.filter((t) => {
    const isFar = t - last >= seconds;
    if (isFar) last = t;
    return isFar;
  });
}

function useWidth(ref) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(ref.current);
    return () => watch.disconnect();
  }, []);
  return width;
}

// rows: [{name, marks, buckets, paused, bad, coming: [Unix seconds]}]
export function Timeline({ rows, window: span, step, open }) {
  const box = useRef(null);
  const width = useWidth(box);
  const [hot, setHot] = useState(null); // {row, key, byKey}
  const at = now() / 1000;
  const scale = (width * (1 - AHEAD)) / span;
  const from = at - span;
  const until = from + width / (scale || 1);
  const place = (t) => (t - from) * scale;
  const height = TOP + rows.length * ROW + 4;
  const itemsOf = (index) => (rows[index] ? items(rows[index], step, at) : []);

  const point = (event) => {
    const area = box.current.getBoundingClientRect();
    const x = event.clientX - area.left;
    const row = Math.floor((event.clientY - area.top - TOP) / ROW);
    let best = null;
    for (const item of itemsOf(row)) {
      const away = Math.max(place(item.from) - x, x - place(item.to), 0);
      if (away <= NEAR_PX && (!best || away <= best.away)) best = { row, key: item.key, away };
    }
    setHot(best && { row, key: best.key, byKey: false });
  };

  const found = hot && itemsOf(hot.row).find((item) => item.key === hot.key);
  const move = (event) => {
    const way = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Enter" && found) open(found.href);
    if (!way) return;
    event.preventDefault();
    const filled = rows.map((_, index) => index).filter((index) => itemsOf(index).length);
    if (!filled.length) return;
    const now = found ? filled.indexOf(hot.row) : -1;
    const row = filled[now < 0 ? 0 : (now + way[0] + filled.length) % filled.length];
    const all = itemsOf(row);
    const index = now >= 0 && way[1] ? all.findIndex((item) => item.key === hot.key) + way[1] : all.length - 1;
    setHot({ row, key: all[Math.min(Math.max(index, 0), all.length - 1)].key, byKey: true });
  };

  return html`<div class="tl">
    <div class="labels">${rows.map((row) => html`<${Label} key=${row.name} row=${row}/>`)}</div>
    <div ref=${box}>
      <svg height=${height} viewBox="0 0 ${width || 1} ${height}" tabindex="0" role="group"
        aria-label="Timeline. The arrow keys go from fire to fire, Enter opens one."
        onPointerMove=${point} onPointerLeave=${() => setHot(null)} onKeyDown=${move} onBlur=${() => setHot(null)}>
        <defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="5" height="5" class="m-run"/><rect width="1.6" height="5" fill="#fff" opacity=".4"/></pattern></defs>
        <rect x=${place(at)} y=${TOP - 4} width=${Math.max(width - place(at), 0)} height=${height} class="ahead"/>
        <${Axis} at=${at} width=${width} from=${from} until=${until} place=${place} height=${height}/>
        <path d=${rows.map((_, i) => `M0 ${TOP + (i + 1) * ROW}H${width}`).join("")} class="grid"/>
        <g transform="translate(${place(origin)} 0)">${rows.map((row, i) => {
          const planned = Math.max(at, ...row.marks.map((mark) => mark.due)); // those are marks already
          const coming = apart(row.coming, RING / scale).filter((t) => t > planned);
          const on = [row.marks, row.buckets, scale, i, coming.join(" "), row.marks.some(isRunning) ? at : 0];
          return html`<${Memo} key=${row.name} on=${on} draw=${() => html`<g transform="translate(0 ${TOP + i * ROW})">
            ${coming.map((t) => html`<circle cx=${(t - origin) * scale} cy=${ROW / 2} r="3" class="m-next"/>`)}
            ${row.buckets ? html`<${Buckets} buckets=${row.buckets} step=${step} scale=${scale}/>`
              : row.marks.map((mark) => html`<${Mark} key=${mark.key} mark=${mark} scale=${scale} at=${at}/>`)}</g>`}/>`;
        })}</g>
        ${rows.map((row, i) => row.paused && html`<text key=${row.name} x=${place(at) - 8} y=${TOP + i * ROW + 16}
          text-anchor="end" class="paused">${width > 500 ? pauseText(row.paused) : "paused"}</text>`)}
        <path d="M${place(at)} ${TOP - 4}V${height}" class="nowline"/>
        <text x=${place(at)} y="13" text-anchor="middle" class="nowtext">now</text>
        ${found && html`<a href=${found.href} tabindex="-1"><rect x=${place(found.from) - found.pad} y=${TOP + hot.row * ROW + 1}
          width=${place(found.to) - place(found.from) + 2 * found.pad + 1} height=${ROW - 2} rx="3" fill="transparent" class="m-on"/></a>`}
      </svg>
      ${found && html`<${Tip} item=${found} x=${place(found.from)} row=${hot.row} width=${width} byKey=${hot.byKey}/>`}
    </div>
  </div>`;
}

const Label = ({ row }) => html`<a href=${jobPage(row.name)} class=${row.bad ? "bad" : ""} title=${row.name}>
  <span class="cut">${short(row.name)}</span>${row.bad && html`<b aria-label="needs attention">!</b>`}
  ${row.paused && html`<span role="img" aria-label="paused"><${Icon} shape="pause"/></span>`}</a>`;

const isRunning = (mark) => mark.attempts.some(([, to]) => to === null);
const pauseText = (pause) => `paused${pause.reason ? `: ${pause.reason}` : ""}${pause.by ? ` (by ${pause.by})` : ""}`;

function Tip({ item, x, row, width, byKey }) {
  const style = { bottom: `calc(100% - ${TOP + row * ROW - 4}px)` };
  if (x > width / 2) style.right = `${Math.max(width - x - 12, 4)}px`;
  else style.left = `calc(100% - ${width - x + 12}px)`;
  return html`<div class="tip" style=${style} role=${byKey ? "status" : "presentation"}>
    <b>${item.title}</b>${item.words}${item.reason && html`<div>${item.reason}</div>`}
  </div>`;
}

const WINDOWS = [["10 min", 600], ["1 h", 3600], ["24 h", 86400]];
export const Windows = () => html`<span class="seg" role="group" aria-label="how far back">${WINDOWS.map(([text, seconds]) =>
  html`<button type="button" aria-pressed=${String(live.window === seconds)} onClick=${() => setWindow(seconds)}>${text}</button>`)}</span>`;

const NONE = [];

// The coming instants of a job at which it is not paused: those of the next minutes, or else the next one.
function comingOf(doc, name) {
  const { next_due_at: next, paused } = doc.jobs[name];
  const runs = doc.soon[name.split("/")[0]] || (next ? [[Date.parse(next) / 1000, 0, 1]] : NONE);
  const until = paused ? Date.parse(paused.until || "9999-01-01T00:00:00Z") / 1000 : 0;
  return runs.flatMap(([first, step, count]) => Array.from({ length: count }, (_, i) => first + i * step)).filter((t) => t > until);
}

// The rows of these jobs, from the live picture.
export function timelineRows(doc, names) {
  return names.map((name) => {
    const job = doc.jobs[name];
    return {
      name,
      marks: live.rows[name] || NONE,
      buckets: doc.timeline.kind === "buckets" ? doc.buckets[name] || NONE : null,
      paused: job.paused,
      bad: /failing|late/.test(job.state),
      coming: comingOf(doc, name),
    };
  });
}

export const Legend = () => html`<div class="legend" aria-hidden="true">
  ${[["succeeded", html`<rect x="1" y="1" width="8" height="10" rx="1.5" class="m-ok"/>`],
    ["failed", html`<rect x="0" y="-2" width="9" height="16" rx="1.5" class="m-bad"/>`],
    ["failed attempt", html`<rect x="1" y="1" width="8" height="10" rx="1.5" class="m-try"/>`],
    ["running", html`<rect x="0" y="0" width="10" height="12" rx="1.5" class="hatch"/>`],
    ["did not run", html`<path d="M5 1l5 5-5 5-5-5z" class="m-off"/>`],
    ["coming", html`<circle cx="5" cy="6" r="3.4" class="m-next"/>`]].map(([text, shape]) =>
    html`<span><svg width="12" height="14" viewBox="-1 -1 12 14">${shape}</svg>${text}</span>`)}
  <a href=${page("/fires")}>all fires</a>
</div>`;
