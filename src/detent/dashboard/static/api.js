// Talks to the server, and builds addresses. Every path is relative to where the dashboard is mounted.

export const { root: ROOT, user: USER, version: VERSION } = document.documentElement.dataset;
const { app, role } = document.documentElement.dataset;
export const MAY_OPERATE = role === "operate";
export const BULK_MAX = 500;

export const query = () => new URLSearchParams(location.search);
export const appName = () => query().get("app") || app;

function search(values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(given).toString();
  return text && `?${text}`;
}

// The address of a page: it keeps the app that was chosen.
export const page = (path, values = {}) => ROOT + path + search({ ...values, app: query().get("app") });
export const firePage = (key) => page(`/fires/${encodeURIComponent(key)}`);
export const jobPage = (name) => page(`/jobs/${encodeURIComponent(name)}`);

// The address of a route: api("fires", KEY, "output").
export const api = (...parts) => `${ROOT}/api/${parts.map(encodeURIComponent).join("/")}`;

async function send(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the dashboard does not answer: is its process running?");
  }
  let body;
  try {
    body = await response.json();
  } catch {
    throw new Error(`the server answered ${response.status} without JSON: reload the page`);
  }
  if (!response.ok) throw new Error(body.error || `the server answered ${response.status}`);
  return body;
}

// The names of jobs and fires begin with their app; everything else is asked for by app.
const namesApp = (url) => /\/api\/(jobs|fires)\//.test(url);
export const apiUrl = (url, values = {}) => url + search({ app: namesApp(url) ? "" : appName(), ...values });
export const get = (url, values, signal) => send(apiUrl(url, values), { signal });
export const post = (url, body) =>
  send(apiUrl(url), { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

// "shop.report" is shown as "report": the app stands in the header.
export const short = (name) => (name.startsWith(`${appName()}.`) ? name.slice(appName().length + 1) : name);
