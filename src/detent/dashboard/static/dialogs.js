// Dialogs for actions, and the short messages about their results.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { BULK_MAX, api, firePage, get, post, short } from "./api.js";
import { isUtc, zoneName } from "./time.js";

const TOAST_MS = 6000;
const REASON_MAX = 200;
const ARGUMENTS_MAX = 50000; // characters
const shown = { dialog: null, toasts: [], notify: () => {} };
let count = 0;

export function say(text, { bad = false, href = "" } = {}) {
  const id = ++count;
  shown.toasts = [...shown.toasts, { id, text, bad, href }];
  shown.notify();
  setTimeout(() => {
    shown.toasts = shown.toasts.filter((one) => one.id !== id);
    shown.notify();
  }, TOAST_MS);
}

// dialog: {title, text, fields: [component], verb, danger, act(values)}; `act` may throw an error to show.
export function ask(dialog) {
  shown.dialog = { ...dialog, id: ++count };
  shown.notify();
}

export const isAsking = () => Boolean(shown.dialog);

function close(id) {
  if (shown.dialog?.id !== id) return;
  shown.dialog = null;
  shown.notify();
}

export function Overlay() {
  const [, draw] = useState(0);
  useEffect(() => {
    shown.notify = () => draw((n) => n + 1);
  }, []);
  return html`
    ${shown.dialog && html`<${Dialog} key=${shown.dialog.id} ...${shown.dialog}/>`}
    <div class="toasts" role="status" aria-live="polite">${shown.toasts.map((one) => html`<div key=${one.id} class="toast ${one.bad ? "bad" : ""}">
      ${one.text}${one.href && html` <a href=${one.href}><u>Open</u></a>`}</div>`)}</div>`;
}

function Dialog({ id, title, text, fields, verb, danger, act }) {
  const box = useRef(null);
  const [state, setState] = useState({ busy: false, error: "" });
  useEffect(() => {
    const dialog = box.current;
    dialog.showModal();
    return () => dialog.close(); // gives the focus back
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.target));
    setState({ busy: true, error: "" });
    try {
      await act(values);
      close(id);
    } catch (error) {
      setState({ busy: false, error: error.message });
    }
  };
  return html`<dialog ref=${box} aria-labelledby="dialog-title" onClose=${() => close(id)}>
    <form onSubmit=${submit}>
      <h2 id="dialog-title">${title}</h2>
      ${text && html`<p class="soft">${text}</p>`}
      ${fields}
      ${state.error && html`<p class="error" role="alert">${state.error}</p>`}
      <div class="acts">
        <button type="button" onClick=${() => box.current.close()}>${verb ? "Cancel" : "Close"}</button>
        ${verb && html`<button class="main ${danger ? "danger" : ""}" disabled=${state.busy}>${state.busy ? "Working…" : verb}</button>`}
      </div>
    </form>
  </dialog>`;
}

const Reason = () => html`<label>Reason, for the audit record
  <input name="reason" maxlength=${REASON_MAX} placeholder="optional" autocomplete="off"/></label>`;

const HOURS = [["1 h", 1], ["8 h", 8], ["24 h", 24]];
function Until() {
  const [value, setValue] = useState("");
  const later = (hours) => {
    const at = new Date(Date.now() + hours * 3600000 - (isUtc() ? 0 : new Date().getTimezoneOffset() * 60000));
    setValue(at.toISOString().slice(0, 16));
  };
  return html`<label>Until (${zoneName()}); empty: until it is resumed
    <input type="datetime-local" name="until" value=${value} onInput=${(event) => setValue(event.target.value)}/></label>
    <div class="quick">${HOURS.map(([text, hours]) => html`<button type="button" class="small" onClick=${() => later(hours)}>${text}</button>`)}
      <button type="button" class="small" onClick=${() => setValue("")}>no end</button></div>`;
}

const instant = (text) => (text ? new Date(isUtc() ? `${text}Z` : text).toISOString() : null);

// takes: the names of the parameters, if they are known already; null if there are none to give.
function Arguments({ name, takes: known }) {
  const [takes, setTakes] = useState(known);
  useEffect(() => {
    if (known === undefined) get(api("jobs", name)).then((job) => setTakes(job.takes), () => {});
  }, []);
  return takes?.length > 0 && html`<label>Arguments as JSON: ${takes.join(", ")}
    <textarea name="args" maxlength=${ARGUMENTS_MAX} spellcheck="false"
      placeholder=${known ? '["a", 1] or {"name": "a"}' : "empty: those of its definition; with others it runs as a message of its task"}/></label>`;
}

// Asks before an action on one job or fire. dialog: as for `ask`, with body(values) and said(answer).
function askFor(kind, name, action, dialog, done = () => {}) {
  ask({
    title: `${dialog.verb} ${short(name)}`, fields: html`<${Reason}/>`, ...dialog,
    act: async (values) => {
      const answer = await post(api(kind, name, action), { reason: values.reason, ...dialog.body?.(values) });
      dialog.said(answer);
      done(answer.fire);
    },
  });
}

const started = ({ fire }) => say(`Started ${short(fire)}.`, { href: firePage(fire) });

// `takes` is given for a task: it has no schedule, and its message may wait for a node.
export const runJob = (name, done, takes) => askFor("jobs", name, "fire", {
  title: `Run ${short(name)} now`, verb: "Run now", fields: html`<${Arguments} name=${name} takes=${takes}/><${Reason}/>`,
  text: takes ? "Puts one message on its queue." : "Starts one fire beside its schedule, on a node that serves its queue.",
  body: ({ args }) => ({ args: takes ? args || "[]" : args }), said: started,
}, done);

export const pauseJob = (name, done) => askFor("jobs", name, "pause", {
  verb: "Pause", fields: html`<${Reason}/><${Until}/>`,
  text: "Instants that fall due while it is paused are skipped. Running work continues.",
  body: ({ until }) => ({ until: instant(until) }), said: () => say(`Paused ${short(name)}.`),
}, done);

export const resumeJob = (name, done) => askFor("jobs", name, "resume", {
  verb: "Resume", said: () => say(`Resumed ${short(name)}.`),
}, done);

export const killFire = (key, done) => askFor("fires", key, "kill", {
  verb: "Kill", danger: true, said: () => say(`${short(key)} is being stopped.`),
  text: "Its node ends the whole process tree: first SIGTERM, then SIGKILL. It is not retried.",
}, done);

export const runAgain = (key, done) => askFor("fires", key, "again", {
  title: `Run ${short(key)} again`, verb: "Run again", said: started,
  text: "Starts a new fire with a new key; this one keeps its outcome.",
}, done);

function report(text, errors) {
  say(`${text}${errors.length ? `; ${errors.length} refused: ${errors[0]}` : ""}.`, { bad: errors.length > 0 });
}

const fires = (n) => (n === 1 ? "1 fire" : `${n} fires`);

// Runs again or kills several fires, a few at a time.
export function bulk(keys, verb, done) {
  const chosen = keys.slice(0, BULK_MAX);
  const [title, text] = verb === "kill"
    ? [`Kill ${fires(chosen.length)}`, "Each is ended with its process tree. This cannot be undone."]
    : [`Run ${fires(chosen.length)} again`, "Each starts a new fire with a new key."];
  ask({
    title, text, verb: title, danger: verb === "kill", fields: html`<${Reason}/>`,
    act: async ({ reason }) => {
      const errors = [];
      const left = [...chosen];
      const work = async () => {
        for (let key = left.pop(); key !== undefined; key = left.pop()) {
          try {
            await post(api("fires", key, verb), { reason });
          } catch (error) {
            errors.push(error.message);
          }
        }
      };
      await Promise.all([work(), work(), work(), work()]);
      const well = chosen.length - errors.length;
      report(`${fires(well)} ${verb === "kill" ? "being stopped" : "started again"}`, errors);
      done();
    },
  });
}

const messages = (n) => (n === 1 ? "1 dead message" : `${n} dead messages`);

export function dead(queue, keys, verb, done) {
  const chosen = keys.slice(0, BULK_MAX);
  const isForget = verb === "forget";
  ask({
    title: `${isForget ? "Forget" : "Retry"} ${messages(chosen.length)} of ${queue}`, verb: isForget ? "Forget" : "Retry",
    danger: isForget, fields: html`<${Reason}/>`,
    text: isForget ? "They leave the list of dead letters for good." : "Each is put on its queue again, as a new message.",
    act: async ({ reason }) => {
      const answer = await post(api("queues", queue, verb), { keys: chosen, reason });
      if (isForget) report(`Forgot ${messages(answer.forgotten)}`, []);
      else report(`Put ${messages(answer.retried.length)} on the queue again`, answer.errors.map((one) => one.error));
      done();
    },
  });
}

const KEYS = {
  "/": "filter", "j k": "next, previous row", Enter: "open", Esc: "back", x: "select a row", r: "run the job",
  p: "pause or resume the job", "g n": "Now", "g j": "Jobs", "g f": "Fires", "g q": "Queues", "g o": "Nodes",
  "g a": "Audit", u: "UTC or local time", "?": "this help",
};

export function help() {
  const rows = Object.entries(KEYS).map(([key, text]) => html`<kbd>${key}</kbd><span>${text}</span>`);
  ask({ title: "Keys", fields: html`<div class="keys">${rows}</div>` });
}
