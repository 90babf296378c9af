// What has happened since the target started, the newest first.

import { at, change, screen } from "../address.js";
import { h } from "../dom.js";
import { commandLine } from "../command.js";
import { section, state, withCode } from "../parts.js";
import { table } from "../table.js";

const KINDS = ["started", "connected", "disconnected", "refused", "connection-ended", "changed", "problem", "problem-over", "rebuild", "rebuild-over", "slow-io", "missed"];
const SHOWN = new Set(["tenant", "device", "pool"]);
const STATES = { problem: "degraded", "problem-over": "healthy", refused: "degraded", "slow-io": "degraded", "connection-ended": "degraded", rebuild: "rebuilding" };

export default function events(world) {
  const kind = KINDS.includes(at("kind")) ? at("kind") : "";
  const rows = world.events.filter((one) => kind === "" || one.kind === kind);
  return [h("h1", { class: "hidden" }, "Events"), section("Events",
    h("label", {}, "Kind ", h("select", { id: "kind", onchange: (event) => change({ kind: event.target.value }) },
      h("option", { value: "", selected: kind === "" }, "all"), KINDS.map((one) => h("option", { value: one, selected: one === kind }, one)))),
    table({
      id: "events", rows: rows.map((one, place) => ({ ...one, place })), keyOf: (one) => one.id, filter: true, sort: "-at", empty: "Nothing has happened.",
      columns: [
        // Several happen in a second: in the order in which they came.
        { key: "at", name: "When", value: (one) => `${one.at} ${String(one.place).padStart(6, "0")}`, show: (one) => h("time", { datetime: one.at }, one.at.replace("T", " ").replace("Z", " UTC")) },
        { key: "kind", name: "Kind", value: (one) => one.kind, show: (one) => (STATES[one.kind] ? state(STATES[one.kind], one.kind) : one.kind) },
        { key: "what", name: "What", value: (one) => one.what, show: what },
        { key: "detail", name: "How", value: (one) => one.detail, show: (one) => withCode(one.detail) },
      ],
    }),
    commandLine("flashyard events --follow"))];
}

function what({ what: text }) {
  const [kind, ...name] = text.split(" ");
  return SHOWN.has(kind) && name.length > 0 ? h("a", { href: screen(kind, name.join(" ")) }, text) : text;
}
