// Finds the line of a spec's text that a field is written in. Pure: no page is needed.

const BARE = /[A-Za-z0-9_-]/;

/** The parts of a dotted name, quoted or not, at a place of a line: `{parts, end}`. */
function nameAt(line, from) {
  const parts = [];
  let at = from;
  for (;;) {
    while (line[at] === " " || line[at] === "\t") at++;
    const quote = line[at] === '"' || line[at] === "'" ? line[at] : "";
    const begins = quote ? at + 1 : at;
    at = begins;
    while (at < line.length && (quote ? line[at] !== quote : BARE.test(line[at]))) at++;
    if (at === begins && !quote) return null;
    parts.push(line.slice(begins, at));
    if (quote) at++;
    while (line[at] === " " || line[at] === "\t") at++;
    if (line[at] !== ".") return { parts, end: at };
    at++;
  }
}

/** What is open at the end of a line, of brackets and long strings. */
function openAfter(line, from, open) {
  let { depth, quote } = open;
  for (let at = from; at < line.length; at++) {
    if (quote) {
      if (line[at] === "\\" && quote[0] === '"') at++;
      else if (line.startsWith(quote, at)) [at, quote] = [at + quote.length - 1, ""];
    } else if (line[at] === "#") break;
    else if (line[at] === '"' || line[at] === "'") {
      quote = line.startsWith(line[at].repeat(3), at) ? line[at].repeat(3) : line[at];
      at += quote.length - 1;
    } else if ("[{".includes(line[at])) depth++;
    else if ("]}".includes(line[at])) depth--;
  }
  return { depth: Math.max(0, depth), quote: quote.length === 3 ? quote : "" };
}

/** Every table and key of a text in order: `{path, line}`, lines counted from 1. */
export function places(text) {
  const found = [], counted = new Map();
  let table = [], open = { depth: 0, quote: "" };
  text.split(/\r?\n/).forEach((line, n) => {
    const header = /^\s*(\[\[?)/.exec(line);
    if (open.depth || open.quote) open = openAfter(line, 0, open);
    else if (header) {
      const name = nameAt(line, header[0].length);
      if (!name) return;
      table = name.parts;
      if (header[1] === "[[") {
        const key = table.join("\0"), index = counted.get(key) ?? 0;
        counted.set(key, index + 1);
        table = [...table, String(index)];
      }
      found.push({ path: table, line: n + 1 });
    } else {
      const name = nameAt(line, 0);
      if (!name || line[name.end] !== "=") return;
      found.push({ path: [...table, ...name.parts], line: n + 1 });
      open = openAfter(line, name.end + 1, open);
    }
  });
  return found;
}

/**
 * The line in which a text has a field, or what it would be in; null where it has nothing of it.
 *
 * @param {string} field its dotted name, as the server says it: parts with dots of their own are not quoted there
 */
export function lineOf(text, field) {
  if (!field) return null;
  let best = null;
  for (const { path, line } of places(text)) {
    const name = path.join(".");
    const holds = field === name || field.startsWith(`${name}.`);
    if (holds && (best === null || name.length > best.length)) best = { length: name.length, line };
  }
  return best && best.line;
}

/** The line that the parser of the server names where a text is no TOML; null where it names none. */
export function lineOfFault(detail) {
  const found = /at line (\d+)/.exec(detail);
  return found && Number(found[1]);
}
