// What is looked at is in the address: a reload, a bookmark and the way back show the same. Its
// keys: view, name, device, minutes, filter.TABLE, sort.TABLE, open (tables of charts), theme.

let changed = () => {};

/** Calls `then` when another address is looked at. */
export function follow(then) {
  changed = then;
  addEventListener("popstate", then);
  addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='?']");
    if (link && !event.defaultPrevented && event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      history.pushState(null, "", link.getAttribute("href"));
      then();
      scrollTo(0, 0);
      document.getElementById("content").focus({ preventScroll: true });
    }
  });
}

/** A part of the address. */
export function at(key) {
  return new URLSearchParams(location.search).get(key);
}

/** Changes parts of the address; null takes one away. */
export function change(parts) {
  history.replaceState(null, "", `${to(parts)}${location.hash}`);
  changed();
}

/** An address with some parts changed. */
export function to(parts) {
  const search = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(parts)) {
    value === null || value === "" ? search.delete(key) : search.set(key, value);
  }
  return `?${search}`;
}

/** The address of a screen; theme and span stay. */
export function screen(view, name) {
  const search = new URLSearchParams();
  search.set("view", view);
  if (name) {
    search.set("name", name);
  }
  for (const kept of ["minutes", "theme"]) {
    const value = at(kept);
    if (value) {
      search.set(kept, value);
    }
  }
  return `?${search}`;
}
