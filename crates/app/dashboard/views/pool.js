// A pool: its space, its members and what is done to them, its volumes and their snapshots. Without
// a name: all pools.

import { at } from "../address.js";
import { changeArray, makeSnapshot } from "../api.js";
import { action, word } from "../command.js";
import { h } from "../dom.js";
import { bar, facts, fault, link, section, state } from "../parts.js";
import { table } from "../table.js";
import { bytes, digits, percent, span } from "../units.js";
import { members } from "./device.js";

export default function pool(world) {
  const name = at("name");
  const found = world.pools.find((one) => one.name === name);
  if (!name) {
    return section("Pools", poolTable(world));
  }
  if (!found) {
    return [h("h1", {}, name), h("p", { class: "empty" }, "There is no such pool. ", link("pool", null, "All pools"))];
  }
  const volumes = world.volumes.filter((one) => one.pool === name);
  return [
    h("h1", {}, `Pool ${name} `, state(found.state)),
    fault(found.fault), fault(found.space_hint),
    facts([
      ["Kind", found.kind], ["Devices", found.devices.map((one) => [link("device", one), " "])], ["Size", found.size && bytes(found.size)], ["Used", bytes(found.used_bytes)],
      ["Free", bytes(found.free_bytes)], ["Volumes as hosts see them", bytes(found.logical_bytes)], ["Compression", found.compression_ratio && `${digits(found.compression_ratio)}×`], ["UUID", found.uuid],
    ]),
    found.size && section("Space", space(found)),
    found.members && section("Members", rebuild(found), members(found.members), (found.notes ?? []).map(fault)),
    section("Volumes", volumeTable(volumes)),
    found.kind === "mapped" && section("Snapshots", snapshots(world, name)),
    section("Change", h("div", { class: "actions" },
      found.members && scrub(name, found.scrub?.scrub_state === "running"),
      found.kind === "mapped" && volumes.length > 0 && action({
        id: `snapshot-${name}`, title: "Make a snapshot", role: "operate",
        fields: [{ name: "volume", label: "Of", value: volumes[0].name, options: volumes.map((one) => one.name) }, { name: "name", label: "Name", value: "now" }],
        command: (values) => `snapshot create ${word(`${values.volume}@${values.name}`)}`,
        run: (values) => makeSnapshot(values.volume, values.name),
      }))),
  ];
}

/** All pools in a table. */
export function poolTable(world) {
  const fill = (one) => (one.size ? 1 - one.free_bytes / one.size : null);
  return table({
    id: "pools", rows: world.pools, keyOf: (one) => one.name, filter: world.pools.length > 8, empty: "There are no pools.",
    columns: [
      { key: "name", name: "Pool", value: (one) => one.name, show: (one) => link("pool", one.name) },
      { key: "kind", name: "Kind", value: (one) => one.kind },
      { key: "size", name: "Size", number: true, value: (one) => one.size, show: (one) => bytes(one.size) },
      { key: "free", name: "Free", number: true, value: (one) => one.free_bytes, show: (one) => bytes(one.free_bytes) },
      { key: "fill", name: "Full", number: true, value: fill, show: (one) => percent(fill(one)) },
      { key: "space", name: "Space", value: fill, show: (one) => (one.size ? bar(parts(one), one.size, `Space of ${one.name}`) : "–") },
      { key: "rebuild", name: "Rebuild", value: (one) => one.rebuild_percent, show: (one) => (typeof one.rebuild_percent === "number" ? `${digits(one.rebuild_percent)} %` : "–") },
      { key: "state", name: "State", value: (one) => one.state, show: (one) => [state(one.state), fault(one.fault)] },
    ],
  });
}

function parts({ size, used_bytes, free_bytes, reserved_bytes, snapshot_bytes }) {
  const other = Math.max(size - used_bytes - reserved_bytes - free_bytes, 0);
  return [
    { name: "volumes", value: used_bytes - snapshot_bytes, kind: "s0" },
    { name: "snapshots", value: snapshot_bytes, kind: "s1" },
    { name: "reserved", value: reserved_bytes, kind: "s2" },
    { name: "other", value: other, kind: "s3" },
    { name: "free", value: free_bytes, kind: "rest" },
  ].map((part) => ({ ...part, text: bytes(part.value) }));
}

function space(found) {
  return bar(parts(found), found.size, "Space");
}

function rebuild({ rebuild_percent, rebuild_left_seconds, scrub: last, unresolved }) {
  return [
    typeof rebuild_percent === "number" && [
      h("p", {}, `Rebuild: ${digits(rebuild_percent)} %${rebuild_left_seconds ? `, about ${span(rebuild_left_seconds)} left` : ""}`),
      bar([{ name: "done", value: rebuild_percent, kind: "s0", text: `${digits(rebuild_percent)} %` }], 100, "Rebuild"),
    ],
    last && h("p", {}, `Scrub: ${last.scrub_state}, ${digits(last.percent)} %, ${last.repaired} repaired, ${last.unresolved} unresolved`),
    unresolved > 0 && fault(`${unresolved} ranges of which no copy is known to be right`),
  ];
}

function volumeTable(rows) {
  return table({
    id: "volumes", rows, keyOf: (one) => one.name, filter: rows.length > 8, empty: "There are no volumes in it.",
    columns: [
      { key: "name", name: "Volume", value: (one) => one.name },
      { key: "tenant", name: "Tenant", value: (one) => one.tenant, show: (one) => link("tenant", one.tenant) },
      { key: "size", name: "Size", number: true, value: (one) => one.size, show: (one) => bytes(one.size) },
      { key: "own", name: "Stores", number: true, value: (one) => one.own_bytes, show: (one) => bytes(one.own_bytes) },
      { key: "shared", name: "Shares", about: "What it has and snapshots store", number: true, value: (one) => one.shared_bytes, show: (one) => bytes(one.shared_bytes) },
      { key: "state", name: "State", value: (one) => one.state, show: (one) => [state(one.state), fault(one.fault)] },
      { key: "move", name: "Moves", value: (one) => one.migration?.to, show: (one) => (one.migration ? `to ${one.migration.to}, ${one.migration.state}: ${percent(one.migration.copied_bytes / Math.max(one.migration.size_bytes, 1))}` : "–") },
    ],
  });
}

function snapshots(world, name) {
  return table({
    id: "snapshots", rows: world.snapshots.filter((one) => one.pool === name), keyOf: (one) => one.name, filter: true, empty: "There are no snapshots.",
    columns: [
      { key: "name", name: "Snapshot", value: (one) => one.name },
      { key: "volume", name: "Volume", value: (one) => one.volume },
      { key: "made", name: "Made", value: (one) => one.made },
      { key: "own", name: "Stores", about: "What was written since the snapshot before it", number: true, value: (one) => one.own_bytes, show: (one) => bytes(one.own_bytes) },
      { key: "shared", name: "Shares", about: "What it has and older snapshots store", number: true, value: (one) => one.shared_bytes, show: (one) => bytes(one.shared_bytes) },
      { key: "clones", name: "Clones", value: (one) => [...one.clones, ...one.shared_as].join(", "), show: (one) => [...one.clones, ...one.shared_as].join(", ") || "–" },
    ],
  });
}

function scrub(name, running) {
  return action({
    id: `scrub-${name}`, title: running ? "End the scrub" : "Scrub", role: "admin",
    command: () => `pool scrub ${word(name)}${running ? " --stop" : ""}`,
    run: () => changeArray(name, { scrub: { stop: running } }),
  });
}
