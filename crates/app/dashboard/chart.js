// Lines and stacked areas over time, as SVG. Series are told apart by dash and by their names at
// the end, not by colour alone; arrow keys move a cursor; a table has the same figures.

import { at, change } from "./address.js";
import { draw, h } from "./dom.js";
import { PAUSE_MS, allMarks, begin, now } from "./history.js";
import { clock } from "./units.js";

const HEIGHT = 200;
const TOP = 14;
const BOTTOM = 22;
const LEFT = 62;
const LINE = 14;
const DASHES = ["", "6 3", "2 3", "9 3 2 3", "1 2", "12 4"];
export const SERIES_MOST = DASHES.length;
const ROWS_MOST = 60;
// What is shown at the beginning, when there is less than what is wanted.
const LEAST_MS = 60_000;

// Where the reader looks, by chart: a time, and whether keys brought it there.
const cursors = new Map();
let width = 640;

/** How wide a chart is, in pixels. */
export function setWidth(pixels) {
  width = Math.max(pixels, 240);
}

/** How many minutes charts show. */
export function minutes() {
  const wanted = Number(at("minutes"));
  return [1, 5, 15].includes(wanted) ? wanted : 5;
}

/** A chart: `series` of `{name, points: [{at, value}]}` with values that `write` makes text of. */
export function chart({ id, title, series, write, base = 1000, stacked = false, limit = null, note = null }) {
  const end = now();
  const from = Math.max(end - minutes() * 60_000, Math.min(begin(), end - LEAST_MS));
  const all = placed(series).map((one) => ({ ...one, points: one.points.filter((point) => point.at >= from) }));
  const layers = stacked ? stack(all) : all.map((one) => ({ ...one, tops: one.points, bases: null }));
  const labels = width >= 480 ? 96 : 8;
  const values = layers.flatMap((layer) => layer.tops.map((point) => point.value ?? 0));
  const most = nice(Math.max(...values, limit?.value ?? 0, 0), base);
  const frame = {
    end, from, most,
    x: (time) => LEFT + ((time - from) / (end - from)) * (width - LEFT - labels),
    y: (value) => TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM),
    right: width - labels,
  };
  const times = [...new Set(all.flatMap((one) => one.points.map((point) => point.at)))].sort((a, b) => a - b);
  const cursor = nearest(times, cursors.get(id)?.time);
  return h("figure", { class: "chart", key: id, id: `chart-${id}` },
    h("figcaption", {}, h("h3", {}, title), note && h("p", { class: "note" }, note)),
    times.length === 0 ? h("p", { class: "empty" }, "No figures yet.") : [
      picture({ id, title, frame, layers, times, cursor, stacked, limit, write, named: labels > 8 }),
      legend(id, all, cursor, write, limit),
      data(id, title, all, times, write),
    ]);
}

// Each series in a place of its own: the one that it wants, if no other has it.
function placed(series) {
  const free = new Set(DASHES.keys());
  return series.slice(0, SERIES_MOST).map((one) => {
    const place = free.has(one.place) ? one.place : [...free][0];
    free.delete(place);
    return { ...one, place };
  });
}

function picture({ id, title, frame, layers, times, cursor, stacked, limit, write, named }) {
  const keys = (event) => moveByKey(event, id, times);
  const point = (event) => moveTo(id, times, frame, event);
  const look = layers.map((layer) => `${layer.name} ${write(valueAt(layer.points, cursor ?? times.at(-1)))}`).join(", ");
  return h("svg", {
    viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, tabindex: "0", role: "img",
    "aria-label": `${title}: ${look}. Arrow keys move through time.`,
    onkeydown: keys, onpointermove: point, onpointerdown: point, onpointerleave: () => clear(id), onblur: () => clear(id),
  },
  axes(frame, write),
  marks(frame),
  stacked ? [...layers].reverse().map((layer) => area(layer, frame)) : null,
  layers.map((layer) => line(layer, frame)),
  limit && limit.value <= frame.most && h("line", { class: "limit", x1: LEFT, x2: frame.right, y1: frame.y(limit.value), y2: frame.y(limit.value) }),
  limit && h("text", { class: "limit-name", x: LEFT + 4, y: frame.y(limit.value) - 4 }, limit.name),
  named && ends(layers, frame, stacked),
  cursor !== null && h("line", { class: "cursor", x1: frame.x(cursor), x2: frame.x(cursor), y1: TOP, y2: HEIGHT - BOTTOM }));
}

function axes(frame, write) {
  const ticks = [0, 0.5, 1].map((part) => frame.most * part);
  const parts = width < 480 ? 1 : frame.end - frame.from > LEAST_MS ? 5 : 4;
  const shown = Array.from({ length: parts + 1 }, (_, step) => frame.from + ((frame.end - frame.from) * step) / parts);
  const ago = (time) => {
    const seconds = Math.round((frame.end - time) / 1000);
    if (seconds > 60 && seconds % 60 !== 0) {
      return `−${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
    }
    return seconds === 0 ? "now" : seconds % 60 === 0 ? `−${seconds / 60} min` : `−${seconds} s`;
  };
  return [
    ticks.map((value) => [
      h("line", { class: "grid", x1: LEFT, x2: frame.right, y1: frame.y(value), y2: frame.y(value) }),
      h("text", { class: "tick", x: LEFT - 6, y: frame.y(value) + 4, "text-anchor": "end" }, write(value)),
    ]),
    shown.map((time, place) => h("text", {
      class: "tick", x: frame.x(time), y: HEIGHT - 5,
      "text-anchor": place === 0 ? "start" : place === shown.length - 1 ? "end" : "middle",
    }, ago(time))),
  ];
}

function marks(frame) {
  const inside = allMarks().filter((mark) => mark.at >= frame.from && mark.at <= frame.end);
  return inside.map((mark) => h("g", { class: `mark ${mark.kind}` },
    h("title", {}, `${clock(mark.at)} ${mark.text}`),
    h("line", { x1: frame.x(mark.at), x2: frame.x(mark.at), y1: TOP, y2: HEIGHT - BOTTOM }),
    h("path", { d: `M${frame.x(mark.at) - 4} ${TOP - 8}h8l-4 7z` })));
}

function line(layer, frame) {
  return h("path", { class: `line s${layer.place}`, d: runs(layer.tops).map((run) => track(run, frame) + (run.length === 1 ? "h1" : "")).join(""), "stroke-dasharray": DASHES[layer.place] });
}

function area(layer, frame) {
  const shapes = runs(layer.tops).map((run) => {
    const under = layer.bases.filter((point) => point.at >= run[0].at && point.at <= run.at(-1).at).reverse();
    return `${track(run, frame)}${track(under, frame).replace("M", "L")}Z`;
  });
  return h("path", { class: `area s${layer.place}`, d: shapes.join("") });
}

function track(points, frame) {
  return points.map((point, place) => `${place ? "L" : "M"}${frame.x(point.at).toFixed(1)} ${frame.y(point.value).toFixed(1)}`).join("");
}

// What belongs together: nothing is drawn over a pause, or where there was no I/O.
function runs(points) {
  const all = [];
  let before = null;
  for (const point of points) {
    if (point.value === null) {
      before = null;
      continue;
    }
    if (before === null || point.at - before > PAUSE_MS) {
      all.push([]);
    }
    all.at(-1).push(point);
    before = point.at;
  }
  return all;
}

function stack(all) {
  let bases = all[0]?.points.map((point) => ({ at: point.at, value: 0 })) ?? [];
  return all.map((one) => {
    const tops = one.points.map((point, place) => ({
      at: point.at,
      value: point.value === null ? null : (bases[place]?.value ?? 0) + point.value,
    }));
    const layer = { ...one, tops, bases };
    bases = tops.map((point, place) => ({ at: point.at, value: point.value ?? bases[place]?.value ?? 0 }));
    return layer;
  });
}

// Names where the lines end, moved apart.
function ends(layers, frame, stacked) {
  const labels = layers.flatMap((layer) => {
    const last = layer.tops.at(-1);
    if (!last || last.value === null) {
      return [];
    }
    const base = stacked ? layer.bases.at(-1)?.value ?? 0 : last.value;
    // A layer that cannot be seen has no place to point at.
    if (stacked && last.value - base < frame.most / 100) {
      return [];
    }
    return [{ name: layer.name, place: layer.place, y: frame.y((last.value + base) / 2) }];
  }).sort((one, other) => one.y - other.y);
  let free = TOP;
  for (const label of labels) {
    label.y = Math.max(label.y, free);
    free = label.y + LINE;
  }
  let room = HEIGHT - BOTTOM;
  for (const label of [...labels].reverse()) {
    label.y = Math.min(label.y, room);
    room = label.y - LINE;
  }
  return labels.map(({ name, place, y }) => h("text", { class: `end s${place}`, x: frame.right + 6, y: y + 4 }, short(name)));
}

function short(name) {
  return name.length > 13 ? `${name.slice(0, 12)}…` : name;
}

function legend(id, all, cursor, write, limit) {
  const byKey = cursors.get(id)?.byKey && cursor !== null;
  const time = cursor ?? all[0]?.points.at(-1)?.at;
  return h("div", { class: "legend", "aria-live": byKey ? "polite" : "off" },
    h("span", { class: "when" }, cursor === null ? "now" : clock(cursor)),
    all.map((one) => h("span", { class: "series" },
      h("svg", { width: 28, height: 10, "aria-hidden": "true" },
        h("line", { class: `line s${one.place}`, x1: 0, x2: 28, y1: 5, y2: 5, "stroke-dasharray": DASHES[one.place] })),
      ` ${one.name} `, h("b", {}, write(valueAt(one.points, time))))),
    limit && h("span", { class: "series" }, `${limit.name} `, h("b", {}, write(limit.value))));
}

function data(id, title, all, times, write) {
  const open = (at("open") ?? "").split(",").filter(Boolean);
  const isOpen = open.includes(id);
  const toggle = (event) => {
    if (event.target.open !== isOpen) {
      const others = open.filter((one) => one !== id);
      change({ open: (event.target.open ? [...others, id] : others).join(",") });
    }
  };
  const step = Math.max(1, Math.ceil(times.length / ROWS_MOST));
  const rows = [...times].reverse().filter((_, place) => place % step === 0);
  return h("details", { open: isOpen, ontoggle: toggle },
    h("summary", {}, `Table: ${title}`),
    isOpen && h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${title}` },
      h("table", { class: "data" },
        h("thead", {}, h("tr", {}, h("th", {}, "time"), all.map((one) => h("th", { class: "number" }, one.name)))),
        h("tbody", {}, rows.map((time) => h("tr", {}, h("td", {}, clock(time)),
          all.map((one) => h("td", { class: "number" }, write(valueAt(one.points, time))))))))));
}

function valueAt(points, time) {
  return points.find((point) => point.at === time)?.value ?? null;
}

function nearest(times, wanted) {
  if (wanted === undefined || times.length === 0) {
    return null;
  }
  return times.reduce((best, time) => (Math.abs(time - wanted) < Math.abs(best - wanted) ? time : best));
}

function clear(id) {
  if (cursors.delete(id)) {
    draw();
  }
}

function moveTo(id, times, frame, event) {
  const box = event.currentTarget.getBoundingClientRect();
  const part = ((event.clientX - box.left) * (width / box.width) - LEFT) / (frame.right - LEFT);
  cursors.set(id, { time: frame.from + part * (frame.end - frame.from), byKey: false });
  draw();
}

function moveByKey(event, id, times) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
  if (event.key === "Escape") {
    clear(id);
    return;
  }
  const step = steps[event.key];
  if (step === undefined) {
    return;
  }
  event.preventDefault();
  const here = nearest(times, cursors.get(id)?.time ?? times.at(-1));
  const place = Math.min(Math.max(times.indexOf(here) + step, 0), times.length - 1);
  cursors.set(id, { time: times[place], byKey: true });
  draw();
}

// The next of 1, 2 and 5 times a power, in the unit that the value is written in.
function nice(value, base) {
  if (!(value > 0)) {
    return 1;
  }
  const unit = base === 1024 ? 1024 ** Math.max(Math.floor(Math.log(value) / Math.log(1024)), 0) : 1;
  if (base === 1024 && value > 500 * unit) {
    return 1024 * unit;
  }
  const power = 10 ** Math.floor(Math.log10(value / unit));
  const step = [1, 2, 5, 10].find((one) => one * power * unit >= value);
  return (step ?? 10) * power * unit;
}
