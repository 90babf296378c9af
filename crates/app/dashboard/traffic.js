// Rates and times within an interval, of the sums of `GET /traffic` at its ends; as `flashyard iostat`.

const SEPARATOR = "\u0000";

/** What happened between two answers, by tenant, volume, device or pair of tenant
 *  and device; nothing if sums began anew. */
export function between(before, now, by) {
  const seconds = now.run_seconds - before.run_seconds;
  if (before.starts !== now.starts || seconds <= 0) {
    return null;
  }
  const first = sums(before, by);
  const rows = new Map();
  for (const [key, sum] of sums(now, by)) {
    const name = by === "pair" ? `${sum.tenant}${SEPARATOR}${sum.device}` : sum[by];
    const row = rows.get(name) ?? empty();
    rows.set(name, row);
    row.inFlight += sum.inFlight;
    const former = first.get(key);
    // What is new may have been counted before it was shown.
    if (former) {
      add(row.read, difference(sum.read, former.read));
      add(row.write, difference(sum.write, former.write));
    }
  }
  const figures = new Map();
  for (const [name, row] of rows) {
    figures.set(name, figure(row, seconds, now.bounds_us));
  }
  return figures;
}

// Sums of a tenant on a device never fall, nor do those of a volume while it stays where it is.
function sums(view, by) {
  const all = new Map();
  for (const row of view.volumes) {
    if (by === "volume" && row.volume === null) {
      continue;
    }
    const key = [row.tenant, row.device, by === "volume" ? row.volume : ""].join(SEPARATOR);
    const sum = all.get(key) ?? { ...empty(), tenant: row.tenant, device: row.device, volume: row.volume };
    all.set(key, sum);
    sum.inFlight += row.in_flight;
    add(sum.read, row.read);
    add(sum.write, row.write);
  }
  return all;
}

function empty() {
  const times = () => ({ ios: 0, bytes: 0, waited_us: 0, served_us: 0, took: [] });
  return { inFlight: 0, read: times(), write: times() };
}

function add(sum, more) {
  for (const key of ["ios", "bytes", "waited_us", "served_us"]) {
    sum[key] += more[key];
  }
  more.took.forEach((many, place) => {
    sum.took[place] = (sum.took[place] ?? 0) + many;
  });
}

function difference(now, before) {
  const rest = {};
  for (const key of ["ios", "bytes", "waited_us", "served_us"]) {
    rest[key] = Math.max(now[key] - before[key], 0);
  }
  rest.took = now.took.map((many, place) => Math.max(many - (before.took[place] ?? 0), 0));
  return rest;
}

function figure({ inFlight, read, write }, seconds, bounds) {
  const both = { ios: 0, bytes: 0, waited_us: 0, served_us: 0, took: [] };
  add(both, read);
  add(both, write);
  const mean = (all, key) => (all.ios > 0 ? all[key] / all.ios : null);
  const of = (all, part) => percentile(all.took, bounds, part);
  return {
    inFlight,
    iops: both.ios / seconds,
    bandwidth: both.bytes / seconds,
    reads: read.ios / seconds,
    writes: write.ios / seconds,
    readBandwidth: read.bytes / seconds,
    writeBandwidth: write.bytes / seconds,
    waited: mean(both, "waited_us"),
    served: mean(both, "served_us"),
    // What part of its time I/O waited for its turn.
    waits: both.ios > 0 ? both.waited_us / Math.max(both.waited_us + both.served_us, 1e-9) : null,
    p50: of(both, 0.5),
    p95: of(both, 0.95),
    p99: of(both, 0.99),
    readP99: of(read, 0.99),
    writeP99: of(write, 0.99),
  };
}

/** What this part of all values stays under, if they are spread evenly in each bucket. */
export function percentile(counts, bounds, part) {
  const wanted = counts.reduce((sum, many) => sum + many, 0) * part;
  let passed = 0;
  let from = 0;
  for (let place = 0; place < counts.length; place += 1) {
    const to = bounds[place] ?? from;
    const many = counts[place];
    if (many > 0 && passed + many >= wanted) {
      return from + ((to - from) * (wanted - passed)) / many;
    }
    passed += many;
    from = to;
  }
  return null;
}
