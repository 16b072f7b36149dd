// Numbers, times and names as people read them. Pure: no page is needed.

const ROUNDED = Array.from({ length: 16 }, (_, digits) => new Intl.NumberFormat("en", { maximumFractionDigits: digits }));
const MINUTE = 60_000, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

/** A count with separators. */
export const formatNumber = (number) => ROUNDED[0].format(number);

/** A number of things: "1 person", "1,200 people". */
export const formatCount = (number, singular, plural = `${singular}s`) => `${formatNumber(number)} ${number === 1 ? singular : plural}`;

/** A figure with so many significant digits, and as few as say the same. */
export function formatFigure(value, digits = 4) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return ROUNDED[Math.min(places, 15)].format(value);
}

/** A share in percent. What is not quite all, or not quite nothing, is never rounded to it. */
export function formatPercent(share, digits = 0) {
  if (!Number.isFinite(share)) return "–";
  const step = 10 ** -digits, percentage = 100 * share;
  if (percentage > 0 && percentage < step / 2) return `below ${step} %`;
  if (percentage < 100 && percentage >= 100 - step / 2) return `above ${(100 - step).toFixed(digits)} %`;
  return `${percentage.toFixed(digits)} %`;
}

const FEW_DIGITS = 3, DIGITS_MAX = 6;

/** How many decimals say something where this is half of an interval. */
export function decimalsOf(radius) {
  if (!(Number.isFinite(radius) && radius > 0)) return 3;
  const place = -Math.floor(Math.log10(radius));
  return Math.min(DIGITS_MAX, Math.max(0, place + (radius * 10 ** place < FEW_DIGITS ? 1 : 0)));
}

/** A difference, and its interval where there is one, with as many decimals as say something. */
export function formatDifference(value, low, high) {
  const ends = [low, high].filter((end) => end !== null && end !== undefined);
  const digits = decimalsOf(Math.max(...ends.map((end) => Math.abs(end - value))));
  const formatEnd = (number) => `${number < 0 && Number(number.toFixed(digits)) !== 0 ? "–" : "+"}${Math.abs(number).toFixed(digits)}`;
  return { value: formatEnd(value), interval: ends.length < 2 ? null : `${formatEnd(low)} to ${formatEnd(high)}` };
}

/** A probability of 0 to 1 with which something holds, rounded down. */
export function formatConfidence(share) {
  const digits = Math.min(12, Math.max(1, Math.ceil(-Math.log10(Math.max(1 - share, 1e-12)))));
  return `${Number((Math.floor(share * 10 ** (digits + 2) + 1e-6) / 10 ** digits).toFixed(digits))} %`;
}

/** How long something takes, roughly. */
export function formatDuration(milliseconds) {
  const size = Math.max(0, milliseconds);
  if (size < 90_000) return formatCount(Math.round(size / 1000), "second");
  if (size < 90 * MINUTE) return formatCount(Math.round(size / MINUTE), "minute");
  if (size < 36 * HOUR) return formatCount(Math.round(size / HOUR), "hour");
  return formatCount(Math.round(size / DAY), "day");
}

/** A time, with its day unless that is today. */
export function formatTime(milliseconds, currentTime = Date.now()) {
  const date = new Date(milliseconds);
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (date.toDateString() === new Date(currentTime).toDateString()) return time;
  const year = date.getFullYear() === new Date(currentTime).getFullYear() ? undefined : "numeric";
  return `${date.toLocaleDateString("en-GB", { day: "numeric", month: "long", year })}, ${time}`;
}

/** A text of at most so many letters. */
export const shorten = (text, maxLetters) => (text.length <= maxLetters ? text : `${[...text].slice(0, Math.max(1, Math.floor(maxLetters) - 1)).join("")}…`);

/** A text of at most so many letters that keeps its end: what is there tells names with the same beginning apart. */
export function shortenMiddle(text, maxLetters) {
  const nKept = Math.max(2, Math.floor(maxLetters) - 1), end = Math.floor(nKept / 2);
  return text.length <= maxLetters ? text : `${text.slice(0, nKept - end)}…${text.slice(-end)}`;
}

/** A key of a document as words. */
export const spaceWords = (key) => String(key).replaceAll("_", " ");

const FIGURES = { samples: "people", stopped: "best arm known" };

/** A figure that a history has, by its key, as words. */
export const figureName = (key) => (Object.hasOwn(FIGURES, key) ? FIGURES[key] : spaceWords(key));

/** The first letter as a sentence begins. */
export const capitalize = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** The letter of an arm by its place, as the command line draws maps. */
export const armLetter = (place) => String.fromCharCode(65 + (place % 26)) + (place >= 26 ? Math.floor(place / 26) : "");

const level = (value) => (value === true ? "yes" : value === false ? "no" : String(value));

const CONDITIONS = {
  between: ({ low, high, missing }) => `${formatFigure(low)} to ${formatFigure(high)}${missing ? ", or missing" : ""}`,
  among: ({ values, missing }) => [...values.map(level), ...(missing ? ["missing"] : [])].join(", "),
};

/** Which values of its feature a condition is about. */
export const describeCondition = (bound) => (Object.hasOwn(CONDITIONS, bound.kind) ? CONDITIONS[bound.kind](bound) : formatCell(bound));

/** Which people a bin holds, by the conditions on their features. */
export const describePeople = (conditions) => conditions.map((bound) => `${bound.feature}: ${describeCondition(bound)}`).join("; ") || "everybody";

/** Shares of arms in words. */
export const describeShares = (arms) => Object.entries(arms).map(([arm, share]) => `${arm} ${formatPercent(share)}`).join(", ");

/** One cell of a table; of a column that says what it holds, in its kind of words. */
export function formatCell(value, kind = undefined) {
  if (kind === "share" && typeof value === "number") return formatPercent(value, 1);
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return Number.isSafeInteger(value) ? formatNumber(value) : formatFigure(value);
  if (Array.isArray(value)) return value.map(formatCell).join(", ");
  if (typeof value === "object") return Object.entries(value).map(([key, item]) => `${spaceWords(key)} ${formatCell(item)}`).join(", ");
  return String(value);
}
