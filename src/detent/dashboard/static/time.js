// Instants and durations as text. The store's clock counts: `now()` follows it.

let skew = 0; // milliseconds that the store's clock is ahead of the browser's
let zone = localStorage.getItem("detent.zone") === "local" ? "local" : "utc";

export const now = () => Date.now() + skew;
export const follow = (iso) => { skew = Date.parse(iso) - Date.now(); };
export const isUtc = () => zone === "utc";
export function switchZone() {
  zone = isUtc() ? "local" : "utc";
  localStorage.setItem("detent.zone", zone);
}

function parts(ms) {
  const shown = new Date(isUtc() ? ms : ms - new Date(ms).getTimezoneOffset() * 60000).toISOString();
  return { date: shown.slice(0, 10), time: shown.slice(11, 19), short: shown.slice(11, 16) };
}

export const zoneName = () =>
  isUtc() ? "UTC" : new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts().find((p) => p.type === "timeZoneName").value;
export const clockText = (ms) => parts(ms).time;
export const minuteText = (ms) => parts(ms).short;
export const fullText = (ms) => `${parts(ms).date} ${parts(ms).time} ${zoneName()}`;

// The time of day, with the date unless it is today.
export function timeText(iso) {
  if (!iso) return "–";
  const at = parts(Date.parse(iso));
  return at.date === parts(now()).date ? at.time : `${at.date} ${at.time}`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.floor(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${String(Math.floor(s / 60) % 60).padStart(2, "0")}`;
  return `${Math.floor(s / 86400)} d`;
}

// "12 s ago" or "in 3 min".
export function relative(iso) {
  if (!iso) return "–";
  const ms = Date.parse(iso) - now();
  if (Math.abs(ms) < 1000) return "now";
  const text = duration(Math.floor(Math.abs(ms) / 1000) * 1000).replace(".0", "");
  return ms < 0 ? `${text} ago` : `in ${text}`;
}
