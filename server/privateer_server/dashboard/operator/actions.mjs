// What an operator may do with an experiment. The server says which changes there are, and what their forms say
// (`changes.json`: `id`, `title`, what is `done`, what it means for a device in `flight`, for what was `learned` and for the
// `promise`, whether it `is_final`, and its `fields`). Pure: no page is needed.

/** The actions that the server says an experiment accepts where it stands. */
export const selectActions = (changes, { allowed_changes: allowed }) => changes.filter(({ id }) => allowed.includes(id));

/** Method, address and body of an action, with the texts that were typed. */
export function makeRequest(action, name, typed) {
  const path = `experiments/${encodeURIComponent(name)}`;
  if (action.id === "delete") return { method: "DELETE", path, body: null };
  const body = {};
  for (const { name: field, type } of action.fields) {
    const text = (typed[field] ?? "").trim();
    if (text !== "") body[field] = type === "number" ? Number(text) : text;
  }
  return { method: "POST", path: `${path}/${action.id}`, body: JSON.stringify(body) };
}

/** Whether what was typed needs the name as a confirmation: what cannot be undone, and a round that may be given up. */
export const isGrave = (action, typed) => action.is_final || (typed.seconds ?? "").trim() !== "";

/** What is wrong with the text of a field before anything is sent; null: nothing. */
export function findFault({ type, optional, least: min, most: max, whole: isWhole }, text) {
  if (text === "") return optional ? null : "This is needed.";
  if (type !== "number") return null;
  const number = Number(text);
  if (!Number.isFinite(number)) return "This must be a number.";
  if (isWhole && !Number.isInteger(number)) return "This must be a whole number.";
  if (min !== null && number < min) return `This must be ${min} or more.`;
  return max !== null && number > max ? `This must be ${max} or less.` : null;
}

/** Why the name is wanted as a confirmation. */
export const describeGravity = ({ is_final }) => is_final ? "This cannot be undone" : "The round that is open may be given up, with what came in it";

/** What became of an action, in a sentence or two. */
export function describeOutcome(action, name, answer) {
  if (action.id === "clone") return `${answer.name} is created.`;
  if (answer.changed === false) return `Nothing changed: it was so before.`;
  const pendingNote = answer.pending_changes?.some((line) => line.action === action.id) ? " It holds from the next version on, when the open round is over." : "";
  const lossNote = answer.round_given_up ? " The round that was open is given up, with what came in it." : "";
  return `${name} ${action.done}.${pendingNote}${lossNote}`;
}

/** What is wrong, and what to do, in plain words; `what` is what was wanted. */
export function describeTrouble(error, purpose) {
  if (error.status === 401) return `The token is wrong, or missing. Nothing was changed, and what you typed is still here: type the token of this server, and send it again.`;
  if (error.status === undefined) return `The server did not answer, so it is not known whether ${purpose}. Send it again: the same again changes nothing twice.`;
  const { field, detail, remedy } = error.problem;
  const closed = (text) => text.replace(/\.?$/, "."), capitalized = (text) => text[0].toUpperCase() + text.slice(1);
  return [field ? closed(`${field}: ${detail}`) : capitalized(closed(detail ?? error.message)), remedy && capitalized(closed(remedy))].filter(Boolean).join(" ");
}
