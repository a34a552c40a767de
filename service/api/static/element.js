// Elements of the page, made and replaced.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "path", "line", "rect", "title", "text"]);

/**
 * An element. `on...` properties listen; `class`, `data-...`, `aria-...` and the like are
 * attributes; null, undefined and false leave an attribute or a child out.
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {...any} children elements, text, numbers, or lists of these
 * @returns {any}
 */
export function make(tag, properties = {}, ...children) {
  const made = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "share") made.style.setProperty("--share", String(value));
    else if (name === "hue") made.style.setProperty("--hue", String(value));
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(2).filter((one) => one !== null && one !== undefined && one !== false)
    .map((one) => (typeof one === "number" ? String(one) : one)));
  return made;
}

/**
 * A name that people gave, of any length: cut where it is too long, and whole as its title.
 * @param {string | number} name
 * @param {string} [end] what follows it, on the same line
 */
export function named(name, end = "") {
  return make("span", { class: "name", title: name }, `${name}${end}`);
}

/**
 * Names one after the other, the first few of them.
 * @param {(string | number)[]} names
 * @param {number} most
 */
export function enumerated(names, most) {
  const told = names.slice(0, most);
  const left = names.length - told.length;
  return [...told.flatMap((name, at) => [at ? " " : "", named(name, left || at < told.length - 1 ? "," : "")]), left ? ` and ${left} more` : ""];
}

/**
 * The element with an id; it is part of the page from the start.
 * @param {string} id
 * @returns {any}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return found;
}

/**
 * Put other children into an element, unless the same facts were shown already: so what somebody
 * has focused, or is typing into, stays.
 * @param {HTMLElement} parent
 * @param {unknown} facts what the children are made of
 * @param {() => any[]} children
 */
export function show(parent, facts, children) {
  const key = JSON.stringify(facts);
  if (shown.get(parent) === key) return;
  shown.set(parent, key);
  parent.replaceChildren(...children().flat(2).filter(Boolean));
}

/** @type {WeakMap<HTMLElement, string>} */
const shown = new WeakMap();

/**
 * Put rows into an element; those whose facts were shown already stay: a link that is replaced
 * between the press and the release of a button is not followed.
 * @param {HTMLElement} parent
 * @param {[unknown, () => any][]} rows facts of each, other than those of all others; and what makes it
 */
export function showEach(parent, rows) {
  const before = each.get(parent) ?? new Map();
  const now = new Map(rows.map(([facts, row]) => {
    const key = JSON.stringify(facts);
    return [key, before.get(key) ?? row()];
  }));
  each.set(parent, now);
  const wanted = new Set(now.values());
  for (const old of [...parent.childNodes]) if (!wanted.has(old)) old.remove();
  [...wanted].forEach((row, place) => {
    if (parent.children[place] !== row) parent.insertBefore(row, parent.children[place] ?? null);
  });
}

/** @type {WeakMap<HTMLElement, Map<string, any>>} */
const each = new WeakMap();

/**
 * Set text, and only if it is another: a screen reader is not told twice.
 * @param {HTMLElement} element
 * @param {string} text
 */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
