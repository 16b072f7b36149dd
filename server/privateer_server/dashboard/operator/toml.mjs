// Finds the line of a spec's text that a field is written in. Pure: no page is needed.

const BARE = /[A-Za-z0-9_-]/;

/** The parts of a dotted name, quoted or not, at a place of a line: `{parts, end}`. */
function readName(line, from) {
  const parts = [];
  let index = from;
  for (;;) {
    while (line[index] === " " || line[index] === "\t") index++;
    const quote = line[index] === '"' || line[index] === "'" ? line[index] : "";
    const begins = quote ? index + 1 : index;
    index = begins;
    while (index < line.length && (quote ? line[index] !== quote : BARE.test(line[index]))) index++;
    if (index === begins && !quote) return null;
    parts.push(line.slice(begins, index));
    if (quote) index++;
    while (line[index] === " " || line[index] === "\t") index++;
    if (line[index] !== ".") return { parts, end: index };
    index++;
  }
}

/** What is open at the end of a line, of brackets and long strings. */
function findOpenBrackets(line, from, open) {
  let { depth, quote } = open;
  for (let index = from; index < line.length; index++) {
    if (quote) {
      if (line[index] === "\\" && quote[0] === '"') index++;
      else if (line.startsWith(quote, index)) [index, quote] = [index + quote.length - 1, ""];
    } else if (line[index] === "#") break;
    else if (line[index] === '"' || line[index] === "'") {
      quote = line.startsWith(line[index].repeat(3), index) ? line[index].repeat(3) : line[index];
      index += quote.length - 1;
    } else if ("[{".includes(line[index])) depth++;
    else if ("]}".includes(line[index])) depth--;
  }
  return { depth: Math.max(0, depth), quote: quote.length === 3 ? quote : "" };
}

/** Every table and key of a text in order: `{path, line}`, lines counted from 1. */
export function listPlaces(text) {
  const keys = [], counted = new Map();
  let table = [], open = { depth: 0, quote: "" };
  text.split(/\r?\n/).forEach((line, n) => {
    const header = /^\s*(\[\[?)/.exec(line);
    if (open.depth || open.quote) open = findOpenBrackets(line, 0, open);
    else if (header) {
      const name = readName(line, header[0].length);
      if (!name) return;
      table = name.parts;
      if (header[1] === "[[") {
        const key = table.join("\0"), index = counted.get(key) ?? 0;
        counted.set(key, index + 1);
        table = [...table, String(index)];
      }
      keys.push({ path: table, line: n + 1 });
    } else {
      const name = readName(line, 0);
      if (!name || line[name.end] !== "=") return;
      keys.push({ path: [...table, ...name.parts], line: n + 1 });
      open = findOpenBrackets(line, name.end + 1, open);
    }
  });
  return keys;
}

/**
 * The line in which a text has a field, or what it would be in; null where it has nothing of it.
 *
 * @param {string} field its dotted name, as the server says it: parts with dots of their own are not quoted there
 */
export function findLine(text, field) {
  if (!field) return null;
  let best = null;
  for (const { path, line } of listPlaces(text)) {
    const name = path.join(".");
    const holds = field === name || field.startsWith(`${name}.`);
    if (holds && (best === null || name.length > best.length)) best = { length: name.length, line };
  }
  return best && best.line;
}

/** The line that the parser of the server names where a text is no TOML; null where it names none. */
export function parseFaultLine(detail) {
  const match = /at line (\d+)/.exec(detail);
  return match && Number(match[1]);
}
