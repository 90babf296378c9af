// Small things that screens are made of.

import { screen } from "./address.js";
import { h } from "./dom.js";

/** A link to a screen. */
export function link(view, name, text = name) {
  return h("a", { href: screen(view, name) }, text);
}

const WORDS = {
  healthy: "good", online: "good", kept: "good", active: "good", verified: "good",
  degraded: "care", unverified: "care", "injects-faults": "care", creating: "care", rebuilding: "care", spare: "plain",
  failed: "bad", missed: "bad", unavailable: "bad", "read-only": "bad", full: "bad", oversold: "bad", ignored: "bad",
};
const SIGNS = { good: "✓", care: "!", bad: "✕", plain: "·" };

/** A state: a word with a sign, so that its colour says nothing alone; or another text for it. */
export function state(word, text = word?.replaceAll("-", " ")) {
  if (!word) {
    return h("span", { class: "note" }, "–");
  }
  const kind = WORDS[word] ?? "plain";
  return h("span", { class: `state ${kind}` }, h("span", { "aria-hidden": "true" }, `${SIGNS[kind]} `), text);
}

/** Facts with their names. */
export function facts(all) {
  const known = all.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, known.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** A part of a screen. */
export function section(title, ...content) {
  return h("section", { key: `section-${title}` }, h("h2", {}, title), content);
}

/** A bar of parts: each with a name, a value, and what is written. */
export function bar(parts, whole, about) {
  const all = parts.filter((part) => part.value > 0);
  let from = 0;
  const shapes = all.map((part) => {
    const length = (100 * part.value) / Math.max(whole, 1e-9);
    const shape = h("rect", { class: `part ${part.kind}`, x: from, y: 0, width: Math.max(length - 0.3, 0.3), height: 12 },
      h("title", {}, `${part.name}: ${part.text}`));
    from += length;
    return shape;
  });
  return h("div", { class: "bar" },
    h("svg", { viewBox: "0 0 100 12", preserveAspectRatio: "none", role: "img", "aria-label": `${about}: ${all.map((part) => `${part.name} ${part.text}`).join(", ")}` },
      h("rect", { class: "whole", x: 0, y: 0, width: 100, height: 12 }), shapes),
    h("div", { class: "legend" }, all.map((part) => h("span", { class: "series" },
      h("svg", { width: 12, height: 12, "aria-hidden": "true" }, h("rect", { class: `part ${part.kind}`, width: 12, height: 12 })),
      ` ${part.name} `, h("b", {}, part.text)))));
}

/** A text whose commands stand between backticks. */
export function withCode(text) {
  return text.split("`").map((part, place) => (place % 2 ? h("code", {}, part) : part));
}

/** A line that says what is wrong with something, and what to do. */
export function fault(text) {
  return text ? h("p", { class: "fault" }, withCode(text)) : null;
}
