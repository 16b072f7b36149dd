// Makes elements. Whatever a server says becomes text: nothing here reads HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes, `class`, handlers (`onclick`) and children: elements, texts, or nothing. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same in a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
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
  const opened = new Map([...place.querySelectorAll("details[id]")].map((details) => [details.id, details.open]));
  place.replaceChildren(...children.flat(Infinity).filter(Boolean));
  for (const element of place.querySelectorAll("details[id]")) if (opened.has(element.id)) element.open = opened.get(element.id);
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

/** A part of the page with a heading of its own. */
export function makeSection(id, title, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title`, class: "panel" },
    el("h2", { id: `${id}-title`, tabindex: "-1" }, title), ...children);
}

/** What is shown when somebody asks for it; children that take time to make are given as functions. */
export function makeDetails(id, title, ...children) {
  const later = (nested) => nested.flat(Infinity).map((child) => (typeof child === "function" ? child() : child)).filter(Boolean);
  const details = el("details", { id, ontoggle: () => {
    if (details.open && details.children.length === 1) details.append(...later(children));
  } }, el("summary", {}, title));
  return details;
}

/** Names with what is said of each. */
export function makeFactList(rows) {
  return el("dl", { class: "facts" },
    ...rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

/** A command to type. */
export function makeCommand(text) {
  return el("pre", { tabindex: "0", "aria-label": "command" }, el("code", {}, text));
}

let announced = "";

/** Say something to those who listen to the page, once. */
export function announce(text) {
  if (text === announced) return;
  announced = text;
  const live = document.getElementById("live");
  if (live) live.textContent = text;
}
