// Turns the output of a job into pieces of text with classes for colours.
// One pass, linear in the length of the text. Colours and weights (SGR) become classes; other escape
// sequences (OSC 8 links, titles, cursor moves) are dropped; bidi and control characters are shown by name.

const SPECIAL = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
const SGR_MAX = 64; // characters of one SGR sequence that are read

// Returns [{text, cls}], where cls is "" or a list of classes.
export function pieces(text) {
  const found = [];
  const style = { fg: "", bg: "", on: new Set() };
  let cls = "";
  const add = (part, mark) => {
    if (!part) return;
    const full = mark ? "ctl" : cls;
    const last = found[found.length - 1];
    if (last && last.cls === full && !mark) last.text += part;
    else found.push({ text: part, cls: full });
  };
  let at = 0;
  for (;;) {
    SPECIAL.lastIndex = at;
    const hit = SPECIAL.exec(text);
    if (!hit) break;
    add(text.slice(at, hit.index));
    const code = text.charCodeAt(hit.index);
    if (code === 0x1b || code === 0x9b || code === 0x9d || code === 0x90) {
      const [end, sgr] = escapeEnd(text, hit.index, code);
      if (sgr !== null) cls = apply(style, sgr);
      at = end;
    } else {
      at = hit.index + 1;
      if (code === 0x0d) add(text[at] === "\n" || at === text.length ? "" : "\n");
      else add(nameOf(code), true);
    }
  }
  add(text.slice(at));
  return found;
}

// Returns where the escape sequence ends, and the parameters if it sets colours.
function escapeEnd(text, start, code) {
  const kind = code === 0x1b ? text[start + 1] : { 0x9b: "[", 0x9d: "]", 0x90: "P" }[code];
  let at = start + (code === 0x1b ? 2 : 1);
  if (kind === "[") {
    const first = at;
    while (at < text.length && text.charCodeAt(at) >= 0x20 && text.charCodeAt(at) <= 0x3f) at++;
    if (text[at] === "m" && at - first <= SGR_MAX) return [at + 1, text.slice(first, at)];
    const isFinal = text.charCodeAt(at) >= 0x40 && text.charCodeAt(at) <= 0x7e;
    return [isFinal ? at + 1 : at, null];
  }
  if (kind !== undefined && "]PX^_".includes(kind)) {
    // A string ends with BEL or ST; one that is not closed ends with its line, so that it hides no other line.
    for (; at < text.length; at++) {
      const c = text.charCodeAt(at);
      if (c === 0x07 || c === 0x9c) return [at + 1, null];
      if (c === 0x1b) return [text[at + 1] === "\\" ? at + 2 : at, null];
      if (c === 0x0a) return [at, null];
    }
    return [at, null];
  }
  return [Math.min(at, text.length), null];
}

const WEIGHTS = { 1: "bold", 2: "dim", 3: "ital", 4: "under", 7: "inv", 9: "strike" };
const ENDS = { 22: ["bold", "dim"], 23: ["ital"], 24: ["under"], 27: ["inv"], 29: ["strike"] };

function apply(style, parameters) {
  const codes = parameters.split(/[;:]/).map(Number);
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i];
    if (code === 0) {
      style.fg = style.bg = "";
      style.on.clear();
    } else if (code === 38 || code === 48) {
      const [colour, used] = extended(codes, i + 1);
      style[code === 38 ? "fg" : "bg"] = colour === null ? "" : (code === 38 ? "f" : "b") + colour;
      i += used;
    } else if (code >= 30 && code <= 37) style.fg = "f" + (code - 30);
    else if (code >= 90 && code <= 97) style.fg = "f" + (code - 82);
    else if (code >= 40 && code <= 47) style.bg = "b" + (code - 40);
    else if (code >= 100 && code <= 107) style.bg = "b" + (code - 92);
    else if (code === 39) style.fg = "";
    else if (code === 49) style.bg = "";
    else if (WEIGHTS[code]) style.on.add(WEIGHTS[code]);
    else for (const name of ENDS[code] || []) style.on.delete(name);
  }
  return [style.fg, style.bg, ...style.on].filter(Boolean).join(" ");
}

// 256 colours and RGB, as the nearest of the 16 that have a class.
function extended(codes, at) {
  if (codes[at] === 5) {
    const n = codes[at + 1];
    if (!(n >= 0 && n <= 255)) return [null, 2];
    if (n < 16) return [n, 2];
    const cube = n - 16;
    const level = (v) => (v ? 55 + 40 * v : 0);
    const grey = 8 + 10 * (n - 232);
    return n >= 232
      ? [nearest(grey, grey, grey), 2]
      : [nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)), 2];
  }
  if (codes[at] === 2) return [nearest(codes[at + 1], codes[at + 2], codes[at + 3]), 4];
  return [null, 0];
}

function nearest(r, g, b) {
  const high = Math.max(r, g, b);
  if (!(high >= 0)) return null;
  const bright = high > 180 ? 8 : 0;
  if (high - Math.min(r, g, b) < 40) return high < 64 ? 0 : high < 140 ? 8 : high < 210 ? 7 : 15;
  const half = high / 2;
  return bright + (r > half ? 1 : 0) + (g > half ? 2 : 0) + (b > half ? 4 : 0);
}

function nameOf(code) {
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return "\u27e8U+" + code.toString(16).toUpperCase().padStart(4, "0") + "\u27e9";
}
