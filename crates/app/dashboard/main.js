// Asks the target each second while somebody looks, and draws the screen that the address names.

import * as api from "./api.js";
import { at, change, follow, screen } from "./address.js";
import { minutes, setWidth } from "./chart.js";
import { forgetRoles, whenDone } from "./command.js";
import { draw, drawWith, h, show } from "./dom.js";
import * as past from "./history.js";
import { state } from "./parts.js";
import { forget, keep, takeFromAddress, token } from "./token.js";
import { clock } from "./units.js";
import device from "./views/device.js";
import events from "./views/events.js";
import overview from "./views/overview.js";
import pool from "./views/pool.js";
import tenant from "./views/tenant.js";

const EVERY_MS = 1_000;
// What changes seldom is asked for in every so many rounds.
const SELDOM = 5;
// Of so many volumes of a pool it is asked what they store, which lists do not say.
const STORED_MOST = 32;
// Of so many tenants it is asked who slows them, besides the one that is looked at.
const BLAMED_MOST = 8;
const EVENTS_MOST = 2_000;

const VIEWS = { overview, tenant, device, pool, events };
const NAMES = { overview: "Overview", tenant: "Tenants", device: "Devices", pool: "Pools", events: "Events" };
const THEMES = ["auto", "light", "dark"];

/** What the target said last. */
const world = { status: null, tenants: [], devices: [], pools: [], volumes: [], snapshots: [], events: [] };
let answered = null;
let problem = null;
let wantsToken = null;
let round = 0;
let looked = "";
let timer = null;
let asking = false;

async function look() {
  clearTimeout(timer);
  if (document.hidden || asking || wantsToken !== null) {
    return;
  }
  asking = true;
  const used = token();
  try {
    await askAll();
    answered = Date.now();
    problem = null;
  } catch (why) {
    if (why.code === "forbidden") {
      // Another token may have been typed since.
      if (token() === used) {
        wantsToken = used ? `The token was refused: ${why.message}.` : "";
        forget();
      }
    } else {
      problem ??= { since: Date.now() };
      problem.detail = why.message;
      round = 0;
    }
  }
  asking = false;
  draw();
  timer = setTimeout(look, EVERY_MS);
}

async function askAll() {
  const isSeldom = round % SELDOM === 0;
  const [status, traffic, happened] = await Promise.all([api.status(), api.traffic(), api.events(world.events.at(-1)?.id)]);
  world.status = status;
  past.takeTraffic(traffic);
  past.takeEvents(happened.events);
  world.events = [...world.events, ...happened.events].slice(-EVENTS_MOST);
  if (isSeldom) {
    [world.tenants, world.devices, world.pools] = await Promise.all([api.tenants(), api.devices(), api.pools()]);
    await askVolumes();
  }
  round += 1;
  const promises = new Map(status.tenants.map((row) => [row.tenant, row.promise_state]));
  world.tenants = world.tenants.map((one) => ({ ...one, promise_state: promises.get(one.name) ?? null }));
  await askWhy();
}

// There may be thousands: only where they are shown.
async function askVolumes() {
  if (!at("name") || !["tenant", "pool"].includes(view())) {
    return;
  }
  const of = view();
  try {
    world.volumes = await api.volumes(of, at("name"));
  } catch (why) {
    // There is none of that name, or not any more: its screen says so.
    if (why.code !== "not_found") {
      throw why;
    }
    world.volumes = [];
  }
  if (of === "tenant") {
    return;
  }
  world.snapshots = await api.snapshots();
  const wanted = world.volumes.slice(0, STORED_MOST);
  const answers = await Promise.allSettled(wanted.map((one) => api.volume(one.name)));
  const known = new Map(answers.filter((one) => one.status === "fulfilled").map(({ value }) => [value.name, value]));
  world.volumes = world.volumes.map((one) => known.get(one.name) ?? one);
}

// One that was deleted meanwhile is no reason to stop.
async function askWhy() {
  const known = new Set(world.tenants.map((one) => one.name));
  const wanted = view() === "tenant" ? [at("name")] : past.names("tenant").slice(0, BLAMED_MOST);
  const answers = await Promise.allSettled(wanted.filter((name) => known.has(name)).map(api.why));
  for (const answer of answers) {
    if (answer.status === "fulfilled") {
      past.takeWhy(answer.value);
    }
  }
}

function view() {
  return at("view") in VIEWS ? at("view") : "overview";
}

function render() {
  const theme = THEMES.includes(at("theme")) ? at("theme") : "auto";
  document.documentElement.dataset.theme = theme;
  document.title = title();
  const content = document.getElementById("content");
  const style = getComputedStyle(content);
  const room = content.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  // As the style has it: two charts beside each other where there is room, in a border each.
  setWidth(Math.floor(room >= 1000 ? (room - 16) / 2 : room) - 26);
  show(document.getElementById("header"), header(theme));
  show(content, [banner(), wantsToken !== null ? askToken() : world.status && h("div", { key: `${view()} ${at("name") ?? ""}` }, VIEWS[view()](world))]);
}

function title() {
  const about = [at("name"), NAMES[view()]].filter(Boolean).join(" · ");
  return `${about} · Flashyard`;
}

function header(theme) {
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  return [
    h("a", { class: "brand", href: screen("overview") }, "Flashyard"),
    h("nav", { "aria-label": "Screens" }, Object.entries(NAMES).map(([name, text]) =>
      h("a", { href: screen(name), "aria-current": name === view() ? "page" : undefined }, text))),
    h("span", { class: "health" }, world.status && wantsToken === null && state(world.status.health)),
    h("label", {}, h("span", { class: "hidden" }, "Charts show "), h("select", { id: "minutes", onchange: (event) => change({ minutes: event.target.value }) },
      ["1", "5", "15"].map((one) => h("option", { value: one, selected: Number(one) === minutes() }, `${one} min`)))),
    h("button", { type: "button", id: "theme", onclick: () => change({ theme: next === "auto" ? null : next }) }, `Theme: ${theme}`),
    token() && h("button", { type: "button", id: "forget", onclick: () => { forget(); wantsToken = ""; draw(); } }, "Forget token"),
  ];
}

function banner() {
  if (problem === null) {
    return h("div", { class: "banner", role: "alert", key: "banner" });
  }
  const last = answered ? ` What is shown is of ${clock(answered)}.` : "";
  return h("div", { class: "banner away", role: "alert", key: "banner" },
    `The target is away since ${clock(problem.since)} (${problem.detail}); it is asked again each second.${last}`);
}

function askToken() {
  const enter = (event) => {
    event.preventDefault();
    keep(event.target.elements.token.value);
    forgetRoles();
    wantsToken = null;
    round = 0;
    look();
  };
  return h("form", { class: "token", key: "token", onsubmit: enter },
    h("h2", {}, "A token, please"),
    wantsToken && h("p", { class: "fault", role: "alert" }, wantsToken),
    h("p", {}, "Over TCP the target answers who has a token: one of the lines of the file of ", h("code", {}, "serve --api-tokens"),
      ", without its first word. With the role read everything is shown; operate and admin may change things. It is kept until this tab is closed."),
    h("label", {}, "Token ", h("input", { name: "token", type: "password", autocomplete: "off", required: true, autofocus: true })),
    h("button", { type: "submit", class: "run" }, "Look"));
}

takeFromAddress();
drawWith(render);
follow(() => {
  draw();
  const here = `${view()} ${at("name")}`;
  if (here !== looked) {
    looked = here;
    round = 0;
    look();
  }
});
whenDone(() => {
  round = 0;
  look();
});
addEventListener("resize", draw);
document.addEventListener("visibilitychange", look);
draw();
look();
