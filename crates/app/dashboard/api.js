// Asks the target. Every path here is one of `GET /api/v1`.

import { token } from "./token.js";

const PREFIX = new URL("../api/v1", import.meta.url).href;
const PATIENCE_MS = 10_000;

/** Why something was not done: `code` and `detail` are those of the API. */
export class Problem extends Error {
  constructor(code, detail) {
    super(detail);
    this.code = code;
  }
}

/** Asks for something, or has something done. */
export async function ask(method, path, body) {
  const headers = { Accept: "application/json" };
  if (token()) {
    headers.Authorization = `Bearer ${token()}`;
  }
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
  }
  let answer, text;
  try {
    const content = body === undefined ? undefined : JSON.stringify(body);
    const signal = AbortSignal.timeout(PATIENCE_MS);
    answer = await fetch(PREFIX + path, { method, headers, body: content, signal, cache: "no-store" });
    text = await answer.text();
  } catch {
    throw new Problem("away", "the target does not answer");
  }
  let value;
  try {
    value = text === "" ? null : JSON.parse(text);
  } catch {
    throw new Problem("away", `what answers there is no target (status ${answer.status})`);
  }
  if (!answer.ok) {
    throw new Problem(value?.code ?? "internal", value?.detail ?? `status ${answer.status}`);
  }
  return value;
}

const name = encodeURIComponent;

export const status = () => ask("GET", "/status");
export const traffic = () => ask("GET", "/traffic");
export const devices = () => ask("GET", "/devices");
export const pools = () => ask("GET", "/pools");
export const tenants = () => ask("GET", "/tenants");
/** Those `of` a "tenant" or a "pool" of this name. */
export const volumes = (of, one) => ask("GET", `/volumes?${of}=${name(one)}`);
export const volume = (volume) => ask("GET", `/volumes/${name(volume)}`);
export const snapshots = () => ask("GET", "/snapshots");
export const events = (after) => ask("GET", after ? `/events?after=${name(after)}` : "/events");
export const why = (tenant) => ask("GET", `/tenants/${name(tenant)}/why`);

export const mute = (code, seconds) => ask("PUT", `/health/${name(code)}/mute`, { seconds });
export const unmute = (code) => ask("DELETE", `/health/${name(code)}/mute`);
export const setTenant = (tenant, changes) => ask("PATCH", `/tenants/${name(tenant)}`, changes);
export const setPolicy = (device, policy) => ask("PUT", `/devices/${name(device)}/policy`, { policy });
export const changeArray = (pool, what) => ask("POST", `/arrays/${name(pool)}`, what);
export const makeSnapshot = (volume, snapshot) => ask("POST", "/snapshots", [{ volume, name: snapshot }]);
