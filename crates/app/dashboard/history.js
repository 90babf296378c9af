// What this page has seen in the last minutes. The target keeps no history: it begins when the page
// is opened, stops while nobody looks, and goes with it.

import { between } from "./traffic.js";

const KEPT_MS = 15 * 60_000;
// A line that goes over a longer pause would be made up.
export const PAUSE_MS = 3_500;
const KINDS = ["tenant", "volume", "device", "pair"];
// Of each kind, so that a thousand tenants do not fill the memory of a browser.
const ROWS_MOST = 100;
// In less than this too little happens to tell a rate.
const LEAST_S = 0.5;
const PLACES = 6;
const MARKED = new Set(["changed", "problem", "rebuild", "started"]);

const samples = [];
const whys = new Map();
let marks = [];
let last = null;

/** The name of a tenant on a device among pairs. */
export function pair(tenant, device) {
  return `${tenant}\u0000${device}`;
}

/** Takes up what came to volumes until now. */
export function takeTraffic(view) {
  const at = Date.now();
  if (last !== null && view.starts === last.starts && view.run_seconds - last.run_seconds < LEAST_S) {
    return;
  }
  if (last !== null) {
    const sample = { at };
    for (const kind of KINDS) {
      sample[kind] = busiest(between(last, view, kind) ?? new Map());
    }
    samples.push(sample);
  }
  last = view;
  while (samples.length > 0 && samples[0].at < at - KEPT_MS) {
    samples.shift();
  }
}

function busiest(figures) {
  if (figures.size <= ROWS_MOST) {
    return figures;
  }
  const all = [...figures].sort(([, one], [, other]) => other.iops + other.inFlight - one.iops - one.inFlight);
  return new Map(all.slice(0, ROWS_MOST));
}

/** Takes up where the latency of a tenant comes from. */
export function takeWhy(view) {
  const all = whys.get(view.tenant) ?? [];
  whys.set(view.tenant, all);
  all.push({ at: Date.now(), devices: view.devices });
  while (all[0].at < Date.now() - KEPT_MS) {
    all.shift();
  }
}

/** Takes up events, some of which stand in charts. */
export function takeEvents(events) {
  for (const event of events.filter((one) => MARKED.has(one.kind))) {
    marks.push({ at: Date.parse(event.at), text: `${event.what}: ${event.detail}`, kind: event.kind });
  }
  marks = marks.filter((mark) => mark.at > Date.now() - KEPT_MS);
}

/** Events that stand in charts. */
export function allMarks() {
  return marks;
}

/** The figures of the last interval, by name. */
export function latest(kind) {
  return samples.at(-1)?.[kind] ?? new Map();
}

/** The mean of a figure over the last seconds, so that a table can be read. */
export function lately(kind, name, key, seconds = 5) {
  const values = samples.slice(-seconds).map((sample) => sample[kind].get(name)?.[key]);
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length > 0 ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

/** A figure over time. */
export function series(kind, name, key) {
  return samples.map((sample) => ({ at: sample.at, value: sample[kind].get(name)?.[key] ?? null }));
}

// Where a tenant stands among series, so that it looks alike in all charts.
const places = new Map();

/** The place of a tenant among series. */
export function place(tenant) {
  if (!places.has(tenant)) {
    places.set(tenant, places.size % PLACES);
  }
  return places.get(tenant);
}

/** All names of a kind, the busiest of the last seconds first. */
export function names(kind) {
  const all = new Map();
  for (const sample of samples.slice(-30)) {
    for (const [name, figures] of sample[kind]) {
      all.set(name, (all.get(name) ?? 0) + figures.iops);
    }
  }
  return [...all].sort(([, one], [, other]) => other - one).map(([name]) => name);
}

/** A part of the latency of a tenant on a device over time. */
export function stages(tenant, device, key) {
  const all = whys.get(tenant) ?? [];
  return all.map(({ at, devices }) => ({ at, value: devices.find((one) => one.device === device)?.[key] ?? null }));
}

/** The last answer about a tenant, if it is not old. */
export function lastWhy(tenant) {
  const why = whys.get(tenant)?.at(-1);
  return why && why.at > Date.now() - 15_000 ? why : null;
}

/** When the first figures came that are still here. */
export function begin() {
  return samples[0]?.at ?? Date.now();
}

/** When the last figures came. */
export function now() {
  return samples.at(-1)?.at ?? Date.now();
}
