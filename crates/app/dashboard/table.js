// Tables whose order and filter are in the address. On narrow screens rows are blocks.

import { at, change } from "./address.js";
import { h } from "./dom.js";

const ROWS_MOST = 200;

/** A table: `columns` of `{key, name, value(row), show(row), number}`; `keyOf` names a row. */
export function table({ id, columns, rows, keyOf, filter = false, empty = "None.", sort = null }) {
  const order = at(`sort.${id}`) ?? sort ?? columns[0].key;
  const wanted = (at(`filter.${id}`) ?? "").toLowerCase();
  const found = rows.filter((row) => columns.some((column) => String(column.value(row) ?? "").toLowerCase().includes(wanted)));
  const sorted = inOrder(found, columns, order);
  return h("div", { class: "table", id: `table-${id}`, key: `table-${id}` },
    filter && h("label", { class: "filter" }, "Filter ", h("input", {
      type: "search", value: at(`filter.${id}`) ?? "", oninput: (event) => change({ [`filter.${id}`]: event.target.value }),
    }), h("span", { class: "note" }, ` ${found.length} of ${rows.length}`)),
    sorted.length === 0 ? h("p", { class: "empty" }, rows.length === 0 ? empty : "Nothing fits the filter.") : h("table", {},
      h("thead", {}, h("tr", {}, columns.map((column) => heading(id, column, order)))),
      h("tbody", {}, sorted.slice(0, ROWS_MOST).map((row) => h("tr", { key: keyOf(row) }, columns.map((column) =>
        h("td", { class: column.number ? "number" : undefined, "data-name": column.name },
          column.show ? column.show(row) : String(column.value(row) ?? "–"))))))),
    sorted.length > ROWS_MOST && h("p", { class: "note" }, `The first ${ROWS_MOST} of ${sorted.length}; the filter finds others.`));
}

function heading(id, column, order) {
  const [key, down] = order.startsWith("-") ? [order.slice(1), true] : [order, false];
  const is = key === column.key;
  // What is large comes first where numbers are.
  const other = is ? !down : column.number === true;
  const press = () => change({ [`sort.${id}`]: `${other ? "-" : ""}${column.key}` });
  return h("th", { class: column.number ? "number" : undefined, "aria-sort": is ? (down ? "descending" : "ascending") : undefined, scope: "col" },
    h("button", { type: "button", onclick: press, title: column.about }, column.name, h("span", { "aria-hidden": "true" }, is ? (down ? " ▾" : " ▴") : "")));
}

function inOrder(rows, columns, order) {
  const [key, sign] = order.startsWith("-") ? [order.slice(1), -1] : [order, 1];
  const column = columns.find((one) => one.key === key) ?? columns[0];
  return [...rows].sort((one, other) => sign * compare(column.value(one), column.value(other)));
}

// Nothing is less than anything.
function compare(one, other) {
  const none = (value) => value === null || value === undefined;
  if (none(one) || none(other)) {
    return Number(none(other)) - Number(none(one));
  }
  return typeof one === "number" ? one - other : String(one).localeCompare(String(other), undefined, { numeric: true });
}
