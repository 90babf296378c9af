// Who makes whom wait, of what `GET /tenants/NAME/why` says.

import { lastWhy, lately, names, pair } from "./history.js";

// Less of what an I/O takes is nothing to speak of.
const NOTABLE = 0.25;
const ORDER = ["latency", "throughput", "background"];

/** What delays a tenant on all of its devices, the most first, per I/O of the device. */
export function delays(tenant) {
  const devices = (lastWhy(tenant)?.devices ?? []).filter((one) => one.ios > 0);
  return devices.map((one) => ({
    device: one.device,
    policy: one.policy,
    mean: one.mean_us,
    causes: one.causes,
    by: culprits(tenant, one.device, one.causes),
  }));
}

// Parts of the delay by who has caused it: other tenants by name, everything else under one. What a
// drive moves on its own account is theirs who write to it, each by how much.
function culprits(tenant, device, causes) {
  const all = new Map();
  const charge = (who, cause, part, moved) => {
    const name = !who || who === tenant ? "" : who;
    const sum = all.get(name) ?? { tenant: name, us: 0, share: 0, moved: 0 };
    all.set(name, sum);
    sum.us += cause.us * part;
    sum.share += cause.share * part;
    sum.moved += moved ? cause.us * part : 0;
  };
  for (const cause of causes) {
    const writers = cause.kind === "housekeeping" ? writing(device) : [];
    writers.forEach(([name, part]) => charge(name, cause, part, true));
    if (writers.length === 0) {
      charge(cause.tenant, cause, 1, false);
    }
  }
  return [...all.values()].sort((one, other) => other.us - one.us);
}

// Tenants that write to a device, each with its part of what is written.
function writing(device) {
  const all = names("pair").filter((name) => name === pair(name.split("\u0000")[0], device));
  const written = all.map((name) => [name.split("\u0000")[0], lately("pair", name, "writeBandwidth", 10) ?? 0]);
  const sum = written.reduce((total, [, bytes]) => total + bytes, 0);
  return written.filter(([, bytes]) => bytes > 0).map(([name, bytes]) => [name, bytes / sum]);
}

/** Neighbours whom somebody should do something about, the worst first. */
export function noisy(tenants) {
  const known = new Map(tenants.map((tenant) => [tenant.name, tenant]));
  const found = [];
  for (const victim of tenants) {
    for (const { device, policy, mean, by } of delays(victim.name)) {
      const worst = by.find((one) => one.tenant !== "");
      if (worst && isWrong(victim, known.get(worst.tenant), worst.us / mean)) {
        const missed = victim.promise_state === "missed";
        found.push({ victim: victim.name, culprit: worst.tenant, device, policy, us: worst.us, moved: worst.moved, part: worst.us / mean, missed });
      }
    }
  }
  return found.sort((one, other) => other.missed - one.missed || other.part - one.part);
}

// Who keeps a promise, or has a lower class than those it waits for, is meant to wait.
function isWrong(victim, culprit, part) {
  if (part < NOTABLE || victim.promise_state === "kept") {
    return false;
  }
  if (victim.promise_state === "missed") {
    return true;
  }
  return part >= 2 * NOTABLE && ORDER.indexOf(victim.class) < ORDER.indexOf(culprit?.class ?? "latency");
}
