// The target at a glance: what is wrong, who slows whom, and what tenants, devices and pools do.

import { mute, setPolicy, unmute } from "../api.js";
import { delays, noisy } from "../blame.js";
import { SERIES_MOST, chart } from "../chart.js";
import { action, word } from "../command.js";
import { h } from "../dom.js";
import { latest, lately, names, place, series } from "../history.js";
import { bar, link, section, state, withCode } from "../parts.js";
import { table } from "../table.js";
import { bandwidth, count, percent, rate, span, time } from "../units.js";
import { deviceTable } from "./device.js";
import { poolTable } from "./pool.js";
import { tenantTable } from "./tenant.js";

export default function overview(world) {
  return [
    h("h1", { class: "hidden" }, "Overview"),
    neighbour(world),
    problems(world.status.problems),
    tiles(world),
    section("Tenants", charts(), tenantTable(world)),
    section("Who waits for whom", waiting(world)),
    section("Devices", deviceTable(world)),
    section("Pools", poolTable(world)),
  ];
}

function neighbour(world) {
  const [worst, ...others] = noisy(world.tenants);
  if (!worst) {
    return h("div", { class: "verdict", id: "neighbour", key: "neighbour" }, h("p", {}, h("span", { class: "state good", "aria-hidden": "true" }, "✓ "), "No tenant is slowed down by a noisy neighbour."));
  }
  const { victim, culprit, device, policy, us, moved, part, missed } = worst;
  return h("div", { class: `verdict ${missed ? "bad" : "care"}`, id: "neighbour", key: "neighbour" },
    h("p", { class: "headline" }, h("span", { "aria-hidden": "true" }, missed ? "✕ " : "! "), "Noisy neighbour: ", link("tenant", culprit)),
    h("p", {}, link("tenant", culprit), " makes ", link("tenant", victim), ` wait ${time(us)} in each I/O on `, link("device", device),
      `: ${percent(Math.min(part, 1))} of what it takes.`,
      moved > us / 2 ? " Most of that is garbage collection of the drive, which its writes cause." : "", missed ? " A promise to it is missed." : "",
      others.length > 0 ? ` ${others.length} more below.` : ""),
    policy === "fair" ? null : [
      h("p", {}, `The policy of ${device} is ${policy}${policy === "fifo" ? ": first in, first out, whoever asks" : ""}. With fair tenants do not hurt each other.`),
      action({
        id: `fair-${device}`, title: `Set the policy of ${device} to fair`, role: "admin",
        command: () => `device set ${word(device)} --policy fair`, run: () => setPolicy(device, "fair"),
      }),
    ]);
}

function problems(all) {
  return h("div", { class: "problems", key: "problems" }, all.map((one) => h("article", { class: `problem ${one.muted_until ? "muted" : one.severity}`, key: one.code },
    h("h3", {}, state(one.severity), " ", h("code", {}, one.code), ` ${one.what.join(", ")}${one.count > one.what.length ? ` and ${one.count - one.what.length} more` : ""}`),
    one.detail && h("p", {}, one.detail),
    h("p", {}, h("b", {}, "To do: "), withCode(one.remedy)),
    one.muted_until ? unmuting(one) : muting(one))));
}

function muting({ code }) {
  return action({
    id: `mute-${code}`, title: "Mute", role: "operate",
    fields: [{ name: "span", label: "For", value: "1h", options: ["1h", "8h", "24h"] }],
    command: (values) => `health mute ${code} --for ${values.span}`,
    run: (values) => mute(code, Number.parseInt(values.span, 10) * 3600),
  });
}

function unmuting({ code, muted_until }) {
  return [h("p", { class: "note" }, `Muted until ${muted_until}.`), action({
    id: `unmute-${code}`, title: "Unmute", role: "operate", command: () => `health unmute ${code}`, run: () => unmute(code),
  })];
}

function tiles({ status }) {
  const all = [...latest("tenant").keys()];
  const sum = (key) => all.reduce((total, name) => total + (lately("tenant", name, key) ?? 0), 0);
  const missed = status.promises.filter((one) => one.state === "missed").length;
  const figures = [
    ["I/O", rate(sum("iops"))],
    ["Bandwidth", bandwidth(sum("bandwidth"))],
    ["Promises missed", `${missed} of ${status.promises.length}`],
    ["Connected hosts", count(status.target.hosts)],
    ["Volumes", count(status.target.volumes)],
    ["Ran", span(status.target.ran_seconds)],
  ];
  return h("div", { class: "tiles", key: "tiles" }, figures.map(([name, value]) => h("div", {}, h("span", {}, name), h("b", {}, value))));
}

function charts() {
  const busiest = names("tenant").slice(0, SERIES_MOST).sort();
  const all = (key) => busiest.map((name) => ({ name, place: place(name), points: series("tenant", name, key) }));
  const note = names("tenant").length > SERIES_MOST ? `The ${SERIES_MOST} busiest tenants.` : null;
  return h("div", { class: "charts" },
    chart({ id: "iops", title: "I/O per second by tenant", series: all("iops"), write: rate, note }),
    chart({ id: "p99", title: "Time at the device by tenant, p99", series: all("p99"), write: time, note }));
}

function waiting(world) {
  const rows = world.tenants.flatMap((tenant) => delays(tenant.name).map((delay) => ({ tenant: tenant.name, ...delay })));
  const most = Math.max(...rows.map((row) => row.mean), 1);
  const by = (row) => row.by.filter((one) => one.tenant !== "");
  const others = (row) => by(row).reduce((sum, one) => sum + one.us, 0);
  const rest = (row) => Math.max(row.mean - by(row).slice(0, 4).reduce((sum, one) => sum + one.us, 0), 0);
  return [
    h("p", { class: "note" }, "Of the last 10 to 20 seconds: how long an I/O takes, and how much of that is waiting for other tenants: in their turn, at the device, or for garbage collection that their writes cause."),
    table({
      id: "blame", rows, keyOf: (row) => `${row.tenant} ${row.device}`, sort: "-others", empty: "There is no I/O.",
      columns: [
        { key: "tenant", name: "Tenant", value: (row) => row.tenant, show: (row) => link("tenant", row.tenant) },
        { key: "device", name: "Device", value: (row) => row.device, show: (row) => link("device", row.device) },
        { key: "mean", name: "An I/O takes", number: true, value: (row) => row.mean, show: (row) => time(row.mean) },
        { key: "others", name: "Waits for others", number: true, value: others, show: (row) => time(others(row)) },
        { key: "who", name: "For whom", value: (row) => by(row)[0]?.tenant ?? "", show: (row) => bar(
          [...by(row).slice(0, 4).map((one) => ({ name: one.tenant, value: one.us, kind: `s${place(one.tenant)}`, text: time(one.us) })),
            { name: "rest", value: rest(row), kind: "rest", text: time(rest(row)) }],
          most, `What an I/O of ${row.tenant} takes`) },
      ],
    }),
  ];
}
