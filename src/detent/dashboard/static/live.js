// Keeps the picture of `api/now` current: by a stream, or by polling where the stream fails.
// A hidden tab closes its stream.

import { api, apiUrl, get } from "./api.js";
import { follow } from "./time.js";

const SILENCE_MS = 6000; // a stream that says nothing for so long is replaced by polling
const POLL_MS = 2000;
const STREAM_AGAIN_MS = 30000;

export const live = { doc: null, rows: {}, mode: "wait", error: "", heardAt: 0, window: 600 };
const listeners = new Set();
let stream = null;
let streamAgainAt = 0;
let openedAt = 0;
let isPolling = false;

const notify = () => listeners.forEach((call) => call());
export function subscribe(call) {
  listeners.add(call);
  return () => listeners.delete(call);
}

export const age = () => (live.heardAt ? (performance.now() - live.heardAt) / 1000 : 0) + (live.doc?.stale?.age_s || 0);
export const isStale = () => Boolean(live.doc && (live.doc.stale || performance.now() - live.heardAt > SILENCE_MS + POLL_MS));

// Takes a picture, or the changes to the one we have. Returns false for changes to another one.
function take(doc) {
  if (doc.since === null) {
    live.doc = doc;
    live.rows = {};
    arrange(Object.keys(doc.marks));
  } else if (live.doc && doc.since === live.doc.version) {
    const { jobs = {}, marks = {}, buckets = {}, ...rest } = doc;
    const touched = Object.keys(marks);
    const before = touched.map((key) => live.doc.marks[key]?.job);
    merge(live.doc.jobs, jobs);
    merge(live.doc.marks, marks);
    merge(live.doc.buckets, buckets);
    Object.assign(live.doc, rest);
    if (touched.length) arrange(touched, before);
  } else {
    if (live.doc) live.doc.version = undefined; // the next answer is whole
    return false;
  }
  live.heardAt = performance.now();
  live.error = "";
  if (!live.doc.stale) follow(live.doc.now);
  return true;
}

function merge(into, changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) delete into[name];
    else into[name] = value;
  }
}

// Groups marks by job. The list of a job without changes stays the same object, so that its row is not drawn again.
function arrange(keys, jobs = []) {
  const touched = new Set(jobs.filter(Boolean));
  for (const key of keys) if (live.doc.marks[key]) touched.add(live.doc.marks[key].job);
  for (const job of touched) live.rows[job] = [];
  for (const [key, mark] of Object.entries(live.doc.marks)) {
    if (touched.has(mark.job)) live.rows[mark.job].push({ key, ...mark });
  }
  for (const job of touched) live.rows[job].sort((a, b) => a.due - b.due);
}

const known = () => ({ window: live.window, since: live.doc?.version });

function open() {
  close();
  openedAt = performance.now();
  stream = new EventSource(apiUrl(api("events"), known()));
  stream.onmessage = (event) => {
    if (!take(JSON.parse(event.data))) return open();
    live.mode = "on";
    return notify();
  };
  stream.onerror = () => {
    if (stream && stream.readyState === EventSource.CLOSED) usePolling();
  };
}

function close() {
  if (stream) stream.close();
  stream = null;
}

function usePolling() {
  close();
  streamAgainAt = performance.now() + STREAM_AGAIN_MS;
  poll();
}

async function poll() {
  if (isPolling) return;
  isPolling = true;
  try {
    take(await get(api("now"), known()));
    live.mode = "poll";
  } catch (error) {
    live.mode = "down";
    live.error = error.message;
  }
  isPolling = false;
  notify();
}

let polledAt = 0;
function tick() {
  if (document.hidden) return;
  const at = performance.now();
  if (stream && at - Math.max(live.heardAt, openedAt) > SILENCE_MS) usePolling();
  else if (!stream && at > streamAgainAt) open();
  else if (!stream && at - polledAt >= POLL_MS) {
    polledAt = at;
    poll();
  }
  if (at - live.heardAt > 900) notify(); // ages and "in 12 s" go on
}

export function setWindow(seconds) {
  live.window = seconds;
  restart();
}

export function restart() {
  if (live.doc) live.doc.version = undefined;
  open();
}

export function start() {
  if (!document.hidden) open();
  setInterval(tick, 1000);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else open();
  });
}
