// What a screen shows is described anew each second, and only what differs is changed in the page:
// so focus, selections and scrolling stay where they are.

const SVG = (() => {
  const parser = document.createElement("template");
  parser.innerHTML = "<svg></svg>";
  return parser.content.firstChild.namespaceURI;
})();

const described = new WeakMap();

/** An element: `key` in its properties finds it again where elements change places. */
export function h(tag, properties, ...children) {
  const all = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  return { tag, properties: properties ?? {}, children: all };
}

/** Makes a part of the page what the descriptions say. */
export function show(parent, children) {
  const focused = document.activeElement;
  patch(parent, [children].flat(Infinity).filter(Boolean), parent.namespaceURI === SVG);
  if (focused !== document.activeElement && focused?.isConnected) {
    focused.focus({ preventScroll: true });
  }
}

function patch(parent, children, inSvg) {
  const keyed = new Map();
  for (const node of parent.childNodes) {
    const key = described.get(node)?.properties.key;
    if (key !== undefined) {
      keyed.set(key, node);
    }
  }
  let next = parent.firstChild;
  for (const child of children) {
    const key = child.properties?.key;
    let node = keyed.get(key);
    if (!node || !isSame(node, child)) {
      node = next && isSame(next, child) ? next : create(child, inSvg);
    }
    if (node === next) {
      next = next.nextSibling;
    } else {
      parent.insertBefore(node, next);
    }
    update(node, child, inSvg || child.tag === "svg");
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

function isSame(node, child) {
  const former = described.get(node);
  if (child.tag === undefined) {
    return node.nodeType === Node.TEXT_NODE;
  }
  return former?.tag === child.tag && former.properties.key === child.properties.key;
}

function create(child, inSvg) {
  if (child.tag === undefined) {
    return document.createTextNode("");
  }
  return inSvg || child.tag === "svg" ? document.createElementNS(SVG, child.tag) : document.createElement(child.tag);
}

function update(node, child, inSvg) {
  if (child.tag === undefined) {
    const text = String(child);
    if (node.data !== text) {
      node.data = text;
    }
    return;
  }
  const former = described.get(node)?.properties ?? {};
  for (const name of Object.keys(former)) {
    if (!(name in child.properties)) {
      set(node, name, undefined);
    }
  }
  for (const [name, value] of Object.entries(child.properties)) {
    if (former[name] !== value) {
      set(node, name, value);
    }
  }
  described.set(node, child);
  patch(node, child.children, inSvg);
}

function set(node, name, value) {
  if (name === "key") {
    return;
  }
  if (name.startsWith("on")) {
    node[name] = value ?? null;
  } else if (name === "value") {
    // What somebody types is theirs.
    if (node !== document.activeElement) {
      node.value = value ?? "";
    }
  } else if (value === undefined || value === null || value === false) {
    node.removeAttribute(name);
  } else {
    node.setAttribute(name, value === true ? "" : value);
  }
}

let drawing = () => {};
let waits = false;

/** What draws the page. */
export function drawWith(how) {
  drawing = how;
}

/** Draws the page soon, once for all who want it. */
export function draw() {
  if (!waits) {
    waits = true;
    requestAnimationFrame(() => {
      waits = false;
      drawing();
    });
  }
}
