// What can be done here. Each says the command line that does the same, to be copied.

import { draw, h } from "./dom.js";

// What was typed, and what became of it, by action.
const states = new Map();
// Roles that the token was found not to have.
const lacking = new Set();
let done = () => {};

/** Calls `then` when something was changed. */
export function whenDone(then) {
  done = then;
}

/** A token was typed: what it may is not known. */
export function forgetRoles() {
  lacking.clear();
  states.clear();
}

/** A word of a command line. */
export function word(text) {
  return /^[\w.@:,=/%+-]+$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`;
}

/** An action: `fields` of `{name, label, value, options, type, hint}`; `command` and `run` of their
 *  values. */
export function action({ id, title, role, fields = [], command, run }) {
  const state = states.get(id) ?? {};
  const values = Object.fromEntries(fields.map((field) => [field.name, state.values?.[field.name] ?? String(field.value ?? "")]));
  const line = `flashyard ${command(values)}`;
  const set = (name, value) => update(id, { values: { ...values, [name]: value }, said: null });
  const start = async (event) => {
    event.preventDefault();
    update(id, { busy: true, said: null });
    try {
      await run(values);
      update(id, { busy: false, values: undefined, said: "Done.", failed: false });
      done();
    } catch (problem) {
      if (problem.code === "forbidden") {
        lacking.add(role);
      }
      update(id, { busy: false, said: `Not done: ${problem.message}`, failed: true });
    }
  };
  const may = !lacking.has(role);
  return h("details", { class: "action", key: `action-${id}`, id: `action-${id}`, open: state.open, ontoggle: (event) => {
    if (event.target.open !== Boolean(state.open)) {
      update(id, { open: event.target.open });
    }
  } },
  h("summary", {}, title),
  h("form", { onsubmit: start },
    fields.map((field) => h("label", {}, `${field.label} `, input(field, values[field.name], set), field.hint && h("span", { class: "note" }, ` ${field.hint}`))),
    commandLine(line),
    may
      ? h("button", { type: "submit", class: "run", disabled: state.busy }, state.busy ? "Working…" : title)
      : h("p", { class: "note" }, `This token may not: it needs the role ${role}.`),
    h("p", { role: "status", class: state.failed ? "failed" : "done" }, state.said ?? "")));
}

function input(field, value, set) {
  if (field.options) {
    return h("select", { onchange: (event) => set(field.name, event.target.value) },
      field.options.map((option) => h("option", { value: option, selected: option === value }, option)));
  }
  return h("input", { type: field.type ?? "text", min: field.min, required: true, value, oninput: (event) => set(field.name, event.target.value) });
}

/** A command line with a button that copies it. */
export function commandLine(line) {
  const id = `copy ${line}`;
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(line);
      update(id, { said: "Copied" });
    } catch {
      update(id, { said: "Select it to copy" });
    }
    setTimeout(() => update(id, { said: null }), 2_000);
  };
  return h("span", { class: "command" }, h("code", {}, line),
    h("button", { type: "button", onclick: copy, "aria-label": `Copy: ${line}` }, states.get(id)?.said ?? "Copy"));
}

function update(id, more) {
  states.set(id, { ...states.get(id), ...more });
  draw();
}
