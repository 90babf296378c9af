// The token that the target wants over TCP. It is kept in this tab until that is closed. A link may
// bring it behind `#token=`, which browsers send to nobody; it is taken out of the address at once.

const KEY = "flashyard-token";

/** The token, or nothing. */
export function token() {
  return sessionStorage.getItem(KEY);
}

/** Keeps a token. */
export function keep(text) {
  sessionStorage.setItem(KEY, text.trim());
}

/** Forgets it. */
export function forget() {
  sessionStorage.removeItem(KEY);
}

/** Takes a token from the address. */
export function takeFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    keep(given);
    history.replaceState(null, "", location.pathname + location.search);
  }
}
