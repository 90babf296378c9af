// How numbers are written: with their unit, three digits, and nothing that changes its width by much.

/** Three digits. */
export function digits(value) {
  const size = Math.abs(value);
  return size >= 100 || Number.isInteger(value) ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** A time, given in microseconds. */
export function time(us) {
  if (us === null || us === undefined) {
    return "–";
  }
  if (us < 1e3) {
    return `${us < 10 ? digits(us) : us.toFixed(0)} µs`;
  }
  return us < 1e6 ? `${digits(us / 1e3)} ms` : `${digits(us / 1e6)} s`;
}

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes. */
export function bytes(value) {
  if (value === null || value === undefined) {
    return "–";
  }
  let place = 0;
  while (value >= 1024 && place < BINARY.length - 1) {
    value /= 1024;
    place += 1;
  }
  return `${digits(value)} ${BINARY[place]}`;
}

/** Bytes in a second. */
export function bandwidth(value) {
  return value === null || value === undefined ? "–" : `${bytes(Math.round(value))}/s`;
}

/** How many. */
export function count(value) {
  if (value === null || value === undefined) {
    return "–";
  }
  if (value < 1e4) {
    return value.toFixed(value < 10 && !Number.isInteger(value) ? 1 : 0);
  }
  return value < 1e6 ? `${digits(value / 1e3)} k` : `${digits(value / 1e6)} M`;
}

/** How many in a second. */
export function rate(value) {
  return value === null || value === undefined ? "–" : `${count(value)}/s`;
}

/** A part of a whole, given from 0 to 1. */
export function percent(part) {
  return part === null || part === undefined ? "–" : `${(part * 100).toFixed(part < 0.0995 && part > 0 ? 1 : 0)} %`;
}

/** A figure of a promise, in the unit that the API names. */
export function promised(value, unit) {
  const write = { us: time, bytes_per_second: bandwidth, per_second: rate }[unit];
  return write ? write(value) : count(value);
}

/** A span in seconds, in its two largest units. */
export function span(seconds) {
  const parts = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([length]) => seconds >= length);
  if (first < 0) {
    return "0 s";
  }
  const [length, unit] = parts[first];
  const rest = parts[first + 1];
  const more = rest ? Math.floor((seconds % length) / rest[0]) : 0;
  return `${Math.floor(seconds / length)} ${unit}${more ? ` ${more} ${rest[1]}` : ""}`;
}

/** The time of the day. */
export function clock(milliseconds) {
  return new Date(milliseconds).toLocaleTimeString([], { hour12: false });
}
