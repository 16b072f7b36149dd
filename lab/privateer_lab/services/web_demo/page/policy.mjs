/** The policy as a picture, which screen readers read as a table. */

const SVG = "http://www.w3.org/2000/svg";

function made(name, attributes = {}, ...children) {
  const found = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  found.append(...children);
  return found;
}

function element(name, attributes = {}, ...children) {
  const found = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  found.append(...children);
  return found;
}

const percent = (share) => `${Math.round(100 * share)} %`;

/** @param bins `[{from, to, shares: {arm: share}}]` in order @param arms names, in order */
export function drawn(bins, arms) {
  const columns = bins.flatMap(({ from, to, shares }) => {
    let top = 0;
    return arms.map((arm) => {
      const height = 100 * (shares[arm] ?? 0);
      const place = { x: 100 * from + 0.15, y: top, width: 100 * (to - from) - 0.3, height, class: arm };
      top += height;
      return made("rect", place);
    });
  });
  const picture = made("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" }, ...columns);
  const legend = arms.map((arm) => element("li", {}, swatch(arm), arm));
  return [
    element("ul", { class: "legend" }, ...legend),
    element("div", { class: "strip" }, picture),
    element("div", { class: "ends", "aria-hidden": "true" }, element("span", {}, "quiet"), element("span", {}, "lively")),
    table(bins, arms),
  ];
}

const swatch = (arm) => made("svg", { viewBox: "0 0 1 1", "aria-hidden": "true" }, made("rect", { width: 1, height: 1, class: arm }));

function table(bins, arms) {
  const head = ["from", "to", ...arms].map((name) => element("th", { scope: "col" }, name));
  const rows = bins.map(({ from, to, shares }) => {
    const cells = [percent(from), percent(to), ...arms.map((arm) => percent(shares[arm] ?? 0))];
    return element("tr", {}, ...cells.map((text) => element("td", {}, text)));
  });
  const caption = element("caption", {}, "How often people get each place, by part of the scale from quiet to lively");
  return element("table", { class: "unseen" }, caption, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}
