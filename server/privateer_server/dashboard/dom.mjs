// Makes elements. Whatever a server says becomes text: nothing here reads HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes, `class`, handlers (`onclick`) and children: elements, texts, or nothing. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same in a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Replace what is in `place`, and keep the focus and what was opened where elements of the same id are there again. */
export function replace(place, ...children) {
  const focused = place.contains(document.activeElement) ? document.activeElement.id : "";
  const opened = new Map([...place.querySelectorAll("details[id]")].map((one) => [one.id, one.open]));
  place.replaceChildren(...children.flat(Infinity).filter(Boolean));
  for (const one of place.querySelectorAll("details[id]")) if (opened.has(one.id)) one.open = opened.get(one.id);
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

/** A part of the page with a heading of its own. */
export function section(id, title, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title`, class: "panel" },
    el("h2", { id: `${id}-title`, tabindex: "-1" }, title), ...children);
}

/** What is shown when somebody asks for it; children that take time to make are given as functions. */
export function more(id, title, ...children) {
  const later = (all) => all.flat(Infinity).map((one) => (typeof one === "function" ? one() : one)).filter(Boolean);
  const made = el("details", { id, ontoggle: () => {
    if (made.open && made.children.length === 1) made.append(...later(children));
  } }, el("summary", {}, title));
  return made;
}

/** Names with what is said of each. */
export function facts(rows) {
  return el("dl", { class: "facts" },
    ...rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

/** A command to type. */
export function command(text) {
  return el("pre", { tabindex: "0", "aria-label": "command" }, el("code", {}, text));
}

let said = "";

/** Say something to those who listen to the page, once. */
export function announce(text) {
  if (text === said) return;
  said = text;
  const live = document.getElementById("live");
  if (live) live.textContent = text;
}
