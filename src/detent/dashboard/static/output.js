// The output of an attempt: colours, wrap, find, download.

import { html, useMemo, useRef, useState, useEffect } from "./vendor/preact.js";
import { api, apiUrl, get } from "./api.js";
import { pieces } from "./ansi.js";
import { useLoad } from "./parts.js";

const FOUND_MAX = 1000;
const FOLLOW_S = 1;

// Where `word` occurs in the text of the pieces, as [start, end].
function places(all, word) {
  const text = all.map((piece) => piece.text).join("").toLowerCase();
  const found = [];
  for (let at = word ? text.indexOf(word) : -1; at >= 0 && found.length < FOUND_MAX; at = text.indexOf(word, at + word.length)) {
    found.push([at, at + word.length]);
  }
  return found;
}

// Cuts the pieces at the borders of what was found.
function cut(all, found) {
  const out = [];
  let offset = 0;
  let next = 0;
  for (const { text, cls } of all) {
    let at = 0;
    while (at < text.length) {
      while (next < found.length && found[next][1] <= offset + at) next++;
      const [start, end] = found[next] || [Infinity, Infinity];
      const isIn = start <= offset + at;
      const to = Math.min(text.length, (isIn ? end : start) - offset);
      out.push({ text: text.slice(at, to), cls, hit: isIn ? next : -1 });
      at = to;
    }
    offset += text.length;
  }
  return out;
}

export function Output({ fire, attempt, isRunning }) {
  const [wrap, setWrap] = useState(true);
  const [word, setWord] = useState("");
  const [current, setCurrent] = useState(0);
  const box = useRef(null);
  const isAtEnd = useRef(true);
  const address = api("fires", fire, "output");
  const load = (signal) => get(address, { attempt }, signal);
  const { data, error } = useLoad(load, `${fire} ${attempt} ${isRunning}`, isRunning ? FOLLOW_S : 0);
  const text = data?.output || "";
  const all = useMemo(() => pieces(text), [text]);
  const found = useMemo(() => places(all, word.toLowerCase()), [all, word]);
  const shown = useMemo(() => cut(all, found), [all, found]);
  useEffect(() => {
    const mark = box.current?.querySelector("mark.cur");
    if (mark) mark.scrollIntoView({ block: "nearest" });
  }, [current, word]);
  useEffect(() => {
    if (isRunning && isAtEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);
  const find = (event) => {
    setWord(event.target.value);
    setCurrent(0);
  };
  const go = (event) => {
    if (event.key !== "Enter" || !found.length) return;
    event.preventDefault();
    setCurrent((current + (event.shiftKey ? found.length - 1 : 1)) % found.length);
  };
  const scrolled = ({ target }) => { isAtEnd.current = target.scrollTop + target.clientHeight > target.scrollHeight - 24; };
  return html`<div class="output">
    <div class="tools"><span class="soft">output${isRunning ? ", following" : ""}${data?.cut ? ", the end only" : ""}</span><span class="grow"/>
      <input aria-label="find in output" placeholder="find" value=${word} onInput=${find} onKeyDown=${go}/>
      ${word && html`<span class="soft" role="status">${found.length ? `${current + 1} of ${found.length}` : "none"}</span>`}
      <button class="small" aria-pressed=${String(wrap)} onClick=${() => setWrap(!wrap)}>wrap</button>
      <a class="button small" href=${apiUrl(address, { attempt, download: 1 })} download>download</a></div>
    <pre ref=${box} class=${wrap ? "wrap" : ""} tabindex="0" aria-label="output of attempt ${attempt}" onScroll=${scrolled}>
      ${error && html`<span class="f1">${error.message}</span>`}
      ${shown.map((piece) => show(piece, current))}
      ${data && !text && html`<span class="dim">${data.note || "no output"}</span>`}</pre>
  </div>`;
}

function show({ text, cls, hit }, current) {
  if (hit >= 0) return html`<mark class=${hit === current ? "cur" : ""}>${text}</mark>`;
  return cls ? html`<span class=${cls}>${text}</span>` : text;
}
