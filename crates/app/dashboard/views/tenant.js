// A tenant: what it gets beside what it is promised, how long its I/O takes and where that comes
// from, and what it has. Without a name: all tenants.

import { at, change } from "../address.js";
import { setTenant } from "../api.js";
import { delays } from "../blame.js";
import { chart } from "../chart.js";
import { action, commandLine, word } from "../command.js";
import { h } from "../dom.js";
import { latest, lately, lastWhy, pair, place, series, stages } from "../history.js";
import { bar, facts, fault, link, section, state } from "../parts.js";
import { table } from "../table.js";
import { bandwidth, bytes, count, percent, promised, rate, time } from "../units.js";

// Less of a delay is not told.
const LITTLE = 0.005;
const STAGES = [["device_us", "device"], ["turn_us", "turn"], ["intake_us", "intake"], ["receive_us", "receive"], ["send_us", "send"]];

export default function tenant(world) {
  const name = at("name");
  const found = world.tenants.find((one) => one.name === name);
  if (!name) {
    return section("Tenants", tenantTable(world));
  }
  if (!found) {
    return [h("h1", {}, name), h("p", { class: "empty" }, "There is no such tenant. ", link("tenant", null, "All tenants"))];
  }
  return [
    h("h1", {}, `Tenant ${name} `, state(found.promise_state)),
    facts([
      ["Class", found.class], ["Weight", String(found.weight)], ["Guarantee", rates(found.guarantee)], ["Limit", rates(found.limit)],
      ["Latency target", found.latency_target && time(found.latency_target)], ["Hosts", found.hosts.join(", ")], ["Subsystem", found.subnqn],
    ]),
    promises(world, name),
    section("Latency", device(name), ...latency(world, found)),
    section("Who makes it wait", blame(name)),
    section("Throughput", h("div", { class: "charts" },
      chart({ id: "iops", title: "I/O per second", write: rate, series: [["reads", "reads"], ["writes", "writes"]].map(([key, text]) => ({ name: text, points: series("tenant", name, key) })) }),
      chart({ id: "bandwidth", title: "Bandwidth", write: bandwidth, base: 1024, series: [["readBandwidth", "read"], ["writeBandwidth", "written"]].map(([key, text]) => ({ name: text, points: series("tenant", name, key) })) }))),
    section("Volumes", volumes(world, name)),
    section("Change", changes(found)),
  ];
}

/** All tenants in a table. */
export function tenantTable(world) {
  const rows = new Map(world.status.tenants.map((row) => [row.tenant, row]));
  const now = (one, key) => lately("tenant", one.name, key);
  const blamed = (one) => delays(one.name).flatMap((delay) => delay.by).filter((cause) => cause.tenant !== "").sort((a, b) => b.us - a.us)[0];
  return table({
    id: "tenants", rows: world.tenants, keyOf: (one) => one.name, filter: world.tenants.length > 8, empty: "There are no tenants.",
    columns: [
      { key: "name", name: "Tenant", value: (one) => one.name, show: (one) => link("tenant", one.name) },
      { key: "class", name: "Class", value: (one) => one.class },
      { key: "weight", name: "Weight", number: true, value: (one) => one.weight },
      { key: "want", name: "Wants", about: "I/Os in flight or waiting", number: true, value: (one) => now(one, "inFlight"), show: (one) => `${count(now(one, "inFlight"))} in flight` },
      { key: "get", name: "Gets", about: "I/Os per second", number: true, value: (one) => now(one, "iops"), show: (one) => rate(now(one, "iops")) },
      { key: "bandwidth", name: "Bandwidth", number: true, value: (one) => now(one, "bandwidth"), show: (one) => bandwidth(now(one, "bandwidth")) },
      { key: "waits", name: "In queue", about: "Part of its time that I/O waits for its turn", number: true, value: (one) => now(one, "waits"), show: (one) => percent(now(one, "waits")) },
      { key: "p99", name: "p99", about: "Time at the device that 99 of 100 I/Os stay under", number: true, value: (one) => now(one, "p99"), show: (one) => time(now(one, "p99")) },
      { key: "promise", name: "Promise", value: (one) => one.promise_state ?? "", show: (one) => state(one.promise_state) },
      { key: "errors", name: "Errors", number: true, value: (one) => rows.get(one.name)?.errors ?? 0 },
      { key: "blame", name: "Waits most for", value: (one) => blamed(one)?.tenant ?? "", show: (one) => (blamed(one) ? [link("tenant", blamed(one).tenant), ` ${time(blamed(one).us)}`] : "–") },
    ],
  });
}

function rates(spec) {
  const all = Object.entries(spec ?? {}).map(([key, value]) => `${key.replaceAll("_", " ")} ${key.includes("bandwidth") ? bandwidth(value) : rate(value)}`);
  return all.join(", ");
}

function promises(world, name) {
  const rows = world.status.promises.filter((one) => one.tenant === name);
  return rows.length === 0 ? null : section("Promises", table({
    id: "promises", rows, keyOf: (one) => `${one.device} ${one.promise}`,
    columns: [
      { key: "promise", name: "Promise", value: (one) => one.promise, show: (one) => one.promise.replaceAll("_", " ") },
      { key: "device", name: "Device", value: (one) => one.device, show: (one) => link("device", one.device) },
      { key: "promised", name: "Promised", number: true, value: (one) => one.promised, show: (one) => promised(one.promised, one.unit) },
      { key: "got", name: "Got", number: true, value: (one) => one.got, show: (one) => (one.got === null ? "–" : promised(one.got, one.unit)) },
      { key: "state", name: "State", value: (one) => one.state ?? "", show: (one) => state(one.state) },
      { key: "why", name: "Why", value: (one) => one.reason ?? "", show: (one) => one.reason ?? "–" },
    ],
  }));
}

// The device whose stages are shown: the one in the address, or the one with the most I/O.
function chosen(name) {
  const all = (lastWhy(name)?.devices ?? []).filter((one) => one.ios !== undefined);
  return all.find((one) => one.device === at("device")) ?? [...all].sort((one, other) => other.ios - one.ios)[0];
}

function device(name) {
  const all = (lastWhy(name)?.devices ?? []).map((one) => one.device);
  return all.length < 2 ? null : h("label", {}, "Device ", h("select", { onchange: (event) => change({ device: event.target.value }) },
    all.map((one) => h("option", { value: one, selected: one === chosen(name)?.device }, one))));
}

function latency(world, { name, latency_target }) {
  const on = chosen(name)?.device;
  const of = (key) => (on ? series("pair", pair(name, on), key) : series("tenant", name, key));
  return [h("div", { class: "charts" },
    chart({
      id: "latency", title: "Time at the device", write: time,
      series: ["p99", "p95", "p50"].map((key) => ({ name: key, points: of(key) })),
      limit: latency_target ? { value: latency_target, name: "target p99" } : null,
      note: "Waiting for a turn and served; each second by itself.",
    }),
    chart({
      id: "stages", title: "Where the time goes, mean", write: time, stacked: true,
      series: STAGES.map(([key, text]) => ({ name: text, points: stages(name, on, key) })),
      note: "From the first byte of a command to the last of its answer, of the last 10 to 20 seconds.",
    }))];
}

function blame(name) {
  const all = delays(name);
  if (all.length === 0) {
    return h("p", { class: "empty" }, "It has no I/O.");
  }
  return [all.map((delay) => h("div", { class: "blame", key: delay.device },
    h("p", {}, "On ", link("device", delay.device), ` (policy ${delay.policy}) an I/O takes ${time(delay.mean)}. What delays it:`),
    bar(delay.by.slice(0, 6).map((one) => ({
      name: one.tenant || "itself, its hosts, the device", value: one.us, kind: one.tenant ? `s${place(one.tenant)}` : "rest", text: `${time(one.us)} (${percent(one.share)}${one.moved > 0 ? ", with garbage collection that its writes cause" : ""})`,
    })), delay.by.reduce((sum, one) => sum + one.us, 0), "What delays it"),
    h("ol", { class: "causes" }, delay.causes.filter((cause) => cause.share >= LITTLE).slice(0, 6).map((cause) => h("li", {}, h("b", {}, percent(cause.share)), ` ${time(cause.us)}: ${cause.cause}`))))),
  commandLine(`flashyard why ${word(name)}`)];
}

function volumes(world, name) {
  const rows = world.volumes.filter((one) => one.tenant === name);
  const now = (one, key) => latest("volume").get(one.name)?.[key];
  return table({
    id: "volumes", rows, keyOf: (one) => one.name, filter: rows.length > 8, empty: "It has no volumes.",
    columns: [
      { key: "name", name: "Volume", value: (one) => one.name },
      { key: "nsid", name: "NSID", number: true, value: (one) => one.nsid },
      { key: "size", name: "Size", number: true, value: (one) => one.size, show: (one) => bytes(one.size) },
      { key: "place", name: "Place", value: (one) => one.pool ?? one.device, show: (one) => (one.pool ? link("pool", one.pool) : link("device", one.device)) },
      { key: "iops", name: "I/O", number: true, value: (one) => now(one, "iops"), show: (one) => rate(now(one, "iops")) },
      { key: "p99", name: "p99", number: true, value: (one) => now(one, "p99"), show: (one) => time(now(one, "p99")) },
      { key: "state", name: "State", value: (one) => one.state, show: (one) => [state(one.state), fault(one.fault)] },
    ],
  });
}

function changes({ name, weight, limit, latency_target }) {
  const whole = (text) => Number.parseInt(text, 10);
  return h("div", { class: "actions" },
    action({
      id: `weight-${name}`, title: "Set weight", role: "admin",
      fields: [{ name: "weight", label: "Weight", type: "number", min: 1, value: weight }],
      command: (values) => `tenant set ${word(name)} --weight ${word(values.weight)}`,
      run: (values) => setTenant(name, { weight: whole(values.weight) }),
    }),
    action({
      id: `limit-${name}`, title: "Set limit", role: "admin",
      fields: [
        { name: "key", label: "Of", value: "iops", options: ["iops", "read_iops", "write_iops", "bandwidth", "read_bandwidth", "write_bandwidth"] },
        { name: "most", label: "At most", value: limit?.iops ?? "10000", hint: "per second; such as 20k, or 50MB/s of a bandwidth. Replaces other limits." },
      ],
      command: (values) => `tenant set ${word(name)} --limit ${word(`${values.key}=${values.most}`)}`,
      run: (values) => setTenant(name, { limit: { [values.key]: /^\d+$/.test(values.most) ? whole(values.most) : values.most } }),
    }),
    action({
      id: `unlimit-${name}`, title: "Remove limit", role: "admin",
      command: () => `tenant set ${word(name)} --limit none`, run: () => setTenant(name, { limit: {} }),
    }),
    action({
      id: `target-${name}`, title: "Set latency target", role: "admin",
      fields: [{ name: "target", label: "p99", value: latency_target ? `${latency_target}us` : "1ms", hint: "such as 500us" }],
      command: (values) => `tenant set ${word(name)} --latency-target ${word(values.target)}`,
      run: (values) => setTenant(name, { latency_target: values.target }),
    }));
}
