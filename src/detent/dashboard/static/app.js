// Starts the dashboard: the header, the router and the keys.

import { html, render, useEffect, useState } from "./vendor/preact.js";
import { ROOT, USER, VERSION, MAY_OPERATE, appName, page, query } from "./api.js";
import { Overlay, help, isAsking, pauseJob, resumeJob, runJob, say } from "./dialogs.js";
import { age, isStale, live, restart, start, subscribe } from "./live.js";
import { Banner, Empty, Problem, Words } from "./parts.js";
import { clockText, duration, now, switchZone, zoneName } from "./time.js";
import { Now, Verdict } from "./screens/now.js";

const SCREENS = [
  ["Now", "/", "n"], ["Jobs", "/jobs", "j"], ["Fires", "/fires", "f"],
  ["Queues", "/queues", "q"], ["Nodes", "/nodes", "o"], ["Audit", "/audit", "a"],
];
// Path -> module and component; a module is loaded when it is first shown.
const LISTS = {
  jobs: ["jobs", "Jobs"], fires: ["fires", "Fires"], queues: ["queues", "Queues"],
  nodes: ["nodes", "Nodes"], audit: ["nodes", "Audit"],
};
const ONE = { jobs: ["jobs", "Job"], fires: ["fire", "Fire"], queues: ["queues", "Queues"] };
const modules = {};
const CHORD_MS = 1500;

let draw = () => {};
let filter = "";

let app = appName();

function go(url) {
  history.pushState(null, "", url);
  arrive();
  scrollTo(0, 0);
}

function arrive() {
  filter = "";
  if (appName() !== app) {
    app = appName();
    live.doc = null;
    restart();
  }
  draw();
}

const parts = () => location.pathname.slice(ROOT.length).split("/").slice(1).map(decodeURIComponent);

// The component for the path: null while its module loads, undefined where there is none.
function component(list, name) {
  if (!list) return Now;
  const [module, member] = (name ? ONE[list] : LISTS[list]) || [];
  if (module && !(module in modules)) {
    modules[module] = null;
    import(`./screens/${module}.js`).then((loaded) => {
      modules[module] = loaded;
      draw();
    }, () => say("A part of the dashboard could not be loaded: reload the page.", { bad: true }));
  }
  return module && modules[module] && modules[module][member];
}

function Screen() {
  const [list, name] = parts();
  const Shown = component(list, name);
  if (Shown === undefined) return html`<${Problem} error=${{ message: "there is no such page: choose one above" }}/>`;
  if (!live.doc && live.error) return html`<${Problem} error=${{ message: live.error }}/>`;
  if (!live.doc || !Shown) return html`<${Empty}>Loading…<//>`;
  return html`<${Shown} key=${location.pathname + app} doc=${live.doc} filter=${filter} open=${go} name=${name}/>`;
}

function App() {
  const [, set] = useState(0);
  useEffect(() => {
    draw = () => set((n) => n + 1);
    const stop = subscribe(draw);
    draw();
    return stop;
  }, []);
  const isNow = !parts()[0];
  const { doc } = live;
  if (doc) document.title = `${doc.headline.ok && !isStale() ? "✓" : "✕"} ${doc.app} · detent`;
  return html`
    <${Header} doc=${doc} isNow=${isNow}/>
    <main class=${doc && isStale() ? "stale" : ""}>
      ${doc && isStale() && html`<${Banner} kind="bad keep" role="alert">${staleText(doc)}<//>`}
      ${doc && isNow && html`<${Verdict} doc=${doc}/>`}
      <${Screen}/>
    </main>
    <${Overlay}/>`;
}

function staleText(doc) {
  const cause = doc.stale ? `The store does not answer: ${doc.stale.error}.` : live.error || "The dashboard does not answer.";
  return `${cause} This picture is ${duration(age() * 1000)} old.`;
}

function Header({ doc, isNow }) {
  const typed = (event) => {
    filter = event.target.value.trim();
    draw();
  };
  return html`<header><div class="bar">
    <span class="brand"><a href=${page("/")} class="brand"><img src="${ROOT}/static/icon.svg" width="20" height="20" alt=""/>detent</a>
      ${doc && html`<${Apps} doc=${doc}/>`}</span>
    <${Screens} problems=${doc && !doc.headline.ok ? doc.problems.length : 0}/>
    ${doc && !isNow && html`<a class="pill ${doc.headline.ok ? "" : "bad"}" href=${page("/")} title=${doc.headline.text}>
      <b aria-hidden="true">${doc.headline.ok ? "✓" : "!"}</b><span class="cut"><${Words} text=${doc.headline.text}/></span></a>`}
    <span class="grow"/>
    <label class="filter"><span class="sr">filter</span>
      <input id="filter" type="search" placeholder="filter" autocomplete="off" value=${filter} onInput=${typed}/>
      <kbd aria-hidden="true">/</kbd></label>
    <${Live} doc=${doc}/>
    <button class="plain" title="switch between UTC and local time (u)" onClick=${changeZone}>${zoneName()}</button>
    <span class="who" title="detent ${VERSION}">${USER}${MAY_OPERATE ? "" : " (read only)"}</span>
    <button class="plain mid" aria-label="keys" title="keys (?)" onClick=${help}>?</button>
  </div></header>`;
}

function Apps({ doc }) {
  if (doc.apps.length < 2) return html`<span class="app">${doc.app}</span>`;
  const choose = (event) => go(`${ROOT}/?app=${encodeURIComponent(event.target.value)}`);
  return html`<select aria-label="app" onChange=${choose}>
    ${doc.apps.map((name) => html`<option value=${name} selected=${name === doc.app}>${name}</option>`)}</select>`;
}

function Screens({ problems }) {
  const here = `/${parts()[0] || ""}`;
  return html`<nav aria-label="screens">${SCREENS.map(([name, path]) => html`
    <a key=${path} href=${page(path)} aria-current=${path === here ? "page" : null}>${name}
      ${path === "/" && problems > 0 && html`<span class="n n-bad" aria-label="problems">${problems}</span>`}</a>`)}</nav>`;
}

function Live({ doc }) {
  const [cls, text] = !doc ? ["wait", "connecting"] : isStale() ? ["down", `${duration(age() * 1000)} old`]
    : live.mode === "poll" ? ["poll", `polling ${clockText(now())}`] : ["on", `live ${clockText(now())}`];
  return html`<span class="live ${cls}" title="age of the data: ${duration(age() * 1000)}"><i aria-hidden="true"></i>${text}</span>`;
}

function changeZone() {
  switchZone();
  draw();
}

// Links inside the dashboard do not load the page again.
document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest("a[href]");
  if (link) {
    const url = new URL(link.href.baseVal ?? link.href, location.href);
    const isOurs = url.origin === location.origin && (url.pathname === ROOT || url.pathname.startsWith(`${ROOT}/`));
    if (!isOurs || link.hasAttribute("download") || url.pathname.startsWith(`${ROOT}/api/`)) return;
    event.preventDefault();
    go(url.pathname + url.search);
    return;
  }
  const row = event.target.closest("tr[data-href]");
  if (row?.dataset.href && !event.target.closest("button, input, select, label, pre") && !String(getSelection())) go(row.dataset.href);
});
addEventListener("popstate", arrive);

// Keys.
const rows = () => [...document.querySelectorAll("main tr[data-href]")];
const row = () => document.activeElement?.closest?.("tr[data-href]");

function step(by) {
  const all = rows();
  const at = all.indexOf(row());
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)];
  if (next) {
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }
}

// The job that `r` and `p` act on: of the focused row, or of the page.
function chosenJob() {
  const [list, name] = parts();
  const job = row()?.dataset.job || (list === "jobs" && name) || "";
  return MAY_OPERATE ? job : "";
}

function back() {
  const [list, name] = parts();
  if (row()) document.activeElement.blur();
  else if (history.length > 1 && (list || query().size)) history.back();
  else if (name) go(page(`/${list}`));
}

let chordAt = -Infinity; // when g was pressed
const ACTIONS = {
  "/": () => document.getElementById("filter").focus(),
  j: () => step(1),
  k: () => step(-1),
  Enter: () => row()?.dataset.href && go(row().dataset.href),
  Escape: back,
  x: () => row()?.querySelector("input[type=checkbox]")?.click(),
  r: () => chosenJob() && runJob(chosenJob()),
  p: () => chosenJob() && (live.doc?.jobs[chosenJob()]?.paused ? resumeJob : pauseJob)(chosenJob()),
  u: changeZone,
  "?": help,
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isAsking()) return;
  if (event.target.matches("input:not([type=checkbox]), select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    if (event.key === "Enter" && event.target.id === "filter") {
      event.target.blur();
      step(1);
    }
    return;
  }
  if (event.key === "Enter" && event.target !== row()) return; // a link or a button has its own
  const isChord = performance.now() - chordAt < CHORD_MS;
  chordAt = event.key === "g" ? performance.now() : -Infinity;
  const screen = isChord && SCREENS.find(([, , key]) => key === event.key);
  const act = screen ? () => go(page(screen[1])) : ACTIONS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

render(html`<${App}/>`, document.body);
start();
