// A device: its policy, what tenants do on it, what it can give, and what it says of itself.
// Without a name: all devices.

import { at } from "../address.js";
import { setPolicy } from "../api.js";
import { SERIES_MOST, chart } from "../chart.js";
import { action, commandLine, word } from "../command.js";
import { h } from "../dom.js";
import { lately, names, pair, place, series } from "../history.js";
import { facts, fault, link, section, state, withCode } from "../parts.js";
import { table } from "../table.js";
import { bandwidth, bytes, count, digits, percent, rate, time } from "../units.js";

const POLICIES = ["fair", "fifo", "gimbal", "gimbal-released", "reflex", "flashfq", "caps"];

export default function device(world) {
  const name = at("name");
  const found = world.devices.find((one) => one.name === name);
  if (!name) {
    return section("Devices", deviceTable(world));
  }
  if (!found) {
    return [h("h1", {}, name), h("p", { class: "empty" }, "There is no such device. ", link("device", null, "All devices"))];
  }
  return [
    h("h1", {}, `Device ${name} `, state(found.state)),
    fault(found.fault), fault(found.policy_note),
    facts([
      ["Kind", found.kind], ["Size", found.size && bytes(found.size)], ["Blocks", `${found.block_size} B`], ["Policy", found.policy], ["Core", found.core?.toString()],
      ["Profile", found.profile], ["Dilation", found.dilation && `${found.dilation}×`], ["Path", found.path], ["Used by", user(found.used_by)],
      ["Write amplification", found.write_amplification && digits(found.write_amplification)],
      ["Late, p99", found.lateness_p99_us !== undefined && `${time(found.lateness_p99_us)}${found.kept_time === "no" ? " (too late: this machine is too slow for it)" : ""}`],
    ]),
    section("Load", charts(world, name), tenants(world, name)),
    found.members && section("Members", members(found.members)),
    found.injected && section("Injected faults", injected(found.injected)),
    section("What it can give", capability(found)),
    section("Change", h("div", { class: "actions" }, action({
      id: `policy-${name}`, title: "Set policy", role: "admin",
      fields: [{ name: "policy", label: "Policy", value: found.policy, options: POLICIES }],
      command: (values) => `device set ${word(name)} --policy ${values.policy}`,
      run: (values) => setPolicy(name, values.policy),
    }))),
  ];
}

// What stands on it is told as "pool `fast`".
function user(text) {
  const [, kind, name] = text?.match(/^(pool|device) `(.*)`$/) ?? [];
  return kind ? [`${kind} `, link(kind, name)] : text && withCode(text);
}

/** All devices in a table. */
export function deviceTable(world) {
  const now = (one, key) => lately("device", one.name, key);
  return table({
    id: "devices", rows: world.devices, keyOf: (one) => one.name, filter: world.devices.length > 8, empty: "There are no devices.",
    columns: [
      { key: "name", name: "Device", value: (one) => one.name, show: (one) => link("device", one.name) },
      { key: "kind", name: "Kind", value: (one) => one.kind },
      { key: "size", name: "Size", number: true, value: (one) => one.size, show: (one) => bytes(one.size) },
      { key: "policy", name: "Policy", value: (one) => one.policy },
      { key: "flight", name: "In flight", number: true, value: (one) => now(one, "inFlight"), show: (one) => count(now(one, "inFlight")) },
      { key: "iops", name: "I/O", number: true, value: (one) => now(one, "iops"), show: (one) => rate(now(one, "iops")) },
      { key: "bandwidth", name: "Bandwidth", number: true, value: (one) => now(one, "bandwidth"), show: (one) => bandwidth(now(one, "bandwidth")) },
      { key: "p99", name: "p99", number: true, value: (one) => now(one, "p99"), show: (one) => time(now(one, "p99")) },
      { key: "state", name: "State", value: (one) => one.state, show: (one) => [state(one.state), fault(one.fault)] },
    ],
  });
}

function on(world, device) {
  const busy = new Set(names("pair"));
  return world.tenants.map((one) => one.name).filter((tenant) => busy.has(pair(tenant, device)));
}

function charts(world, name) {
  const all = on(world, name).slice(0, SERIES_MOST);
  const by = (key) => all.map((tenant) => ({ name: tenant, place: place(tenant), points: series("pair", pair(tenant, name), key) }));
  return h("div", { class: "charts" },
    chart({ id: "shares", title: "Bandwidth by tenant", series: by("bandwidth"), write: bandwidth, base: 1024, stacked: true }),
    chart({ id: "queue", title: "I/O in flight by tenant", series: by("inFlight"), write: count, stacked: true }),
    chart({ id: "served", title: "Waiting and served, mean", write: time, stacked: true, series: [["served", "served"], ["waited", "waited"]].map(([key, text]) => ({ name: text, points: series("device", name, key) })) }),
    chart({ id: "p99", title: "Time at the device by tenant, p99", series: by("p99"), write: time }));
}

function tenants(world, name) {
  const now = (tenant, key) => lately("pair", pair(tenant, name), key);
  return table({
    id: "users", rows: on(world, name), keyOf: (tenant) => tenant, sort: "-bandwidth", empty: "No tenant has volumes on it, or they do nothing.",
    columns: [
      { key: "name", name: "Tenant", value: (tenant) => tenant, show: (tenant) => link("tenant", tenant) },
      { key: "flight", name: "In flight", number: true, value: (tenant) => now(tenant, "inFlight"), show: (tenant) => count(now(tenant, "inFlight")) },
      { key: "reads", name: "Reads", number: true, value: (tenant) => now(tenant, "reads"), show: (tenant) => rate(now(tenant, "reads")) },
      { key: "writes", name: "Writes", number: true, value: (tenant) => now(tenant, "writes"), show: (tenant) => rate(now(tenant, "writes")) },
      { key: "bandwidth", name: "Bandwidth", number: true, value: (tenant) => now(tenant, "bandwidth"), show: (tenant) => bandwidth(now(tenant, "bandwidth")) },
      { key: "waits", name: "In queue", number: true, value: (tenant) => now(tenant, "waits"), show: (tenant) => percent(now(tenant, "waits")) },
      { key: "p99", name: "p99", number: true, value: (tenant) => now(tenant, "p99"), show: (tenant) => time(now(tenant, "p99")) },
    ],
  });
}

/** The members of an array in a table. */
export function members(rows) {
  return table({
    id: "members", rows, keyOf: (one) => one.device,
    columns: [
      { key: "device", name: "Member", value: (one) => one.device, show: (one) => link("device", one.device) },
      { key: "set", name: "Set", value: (one) => one.set },
      { key: "state", name: "State", value: (one) => one.state, show: (one) => [state(one.state), fault(one.why)] },
      { key: "read_errors", name: "Read errors", number: true, value: (one) => one.read_errors },
      { key: "wrong_reads", name: "Wrong reads", number: true, value: (one) => one.wrong_reads },
      { key: "healed", name: "Healed", number: true, value: (one) => one.healed },
      { key: "copied", name: "Copied", number: true, value: (one) => one.copied_bytes, show: (one) => bytes(one.copied_bytes) },
    ],
  });
}

function injected(rows) {
  return table({
    id: "faults", rows, keyOf: (one) => one.fault,
    columns: [
      { key: "fault", name: "Fault", value: (one) => one.fault },
      { key: "seen", name: "Could have hit", number: true, value: (one) => one.seen },
      { key: "injected", name: "Hit", number: true, value: (one) => one.injected },
      { key: "missed", name: "Came to nothing", number: true, value: (one) => one.missed },
    ],
  });
}

function capability({ name, capability: most, curve }) {
  const known = Object.entries(most ?? {}).map(([key, value]) => [key.replaceAll("_", " "), key.includes("bandwidth") ? bandwidth(value) : rate(value)]);
  return [
    known.length > 0 ? facts(known) : [h("p", { class: "empty" }, "It was not measured. Measuring takes 10 to 20 seconds, in which it is busy:"), commandLine(`flashyard device calibrate ${word(name)}`)],
    curve.length > 0 && table({
      id: "curve", rows: curve, keyOf: (one) => one.read_iops,
      columns: [
        { key: "load", name: "Reads of 4 KiB", number: true, value: (one) => one.read_iops, show: (one) => rate(one.read_iops) },
        ...["mean", "p50", "p95", "p99"].map((key) => ({ key, name: key, number: true, value: (one) => one[`${key}_us`], show: (one) => time(one[`${key}_us`]) })),
      ],
    }),
  ];
}
