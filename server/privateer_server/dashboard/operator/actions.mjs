// What an operator may do with an experiment, and what it means for people: the words of docs/operations.md. Pure: no
// page is needed.

const UNCHANGED = "Unchanged.";
const OPEN_ROUND = {
  name: "seconds", label: "Seconds that the open round still has", type: "number", optional: true,
  hint: "Leave it empty, and the round waits for its people. A round that ends early without the people that its promise counts on is given up: what came in it is lost. 0 ends it at once.",
};

/**
 * An action: its address, what it means for a device that has chosen and not reported (`flight`), for
 * what was learned (`learned`) and for the promise (`promise`), what it needs to know, and whether it cannot be undone.
 */
export const ACTIONS = [
  {
    id: "pause", title: "Pause", done: "is paused", fields: [OPEN_ROUND],
    flight: "A device that has chosen reports as ever, and the open round waits for it. Who comes now gets an arm and is not asked: nothing is paid.",
    learned: "Everything is kept. Once the round is full it is learned from, and everybody gets the best policy until you resume.",
    promise: UNCHANGED,
  },
  {
    id: "resume", title: "Resume", done: "asks people again", fields: [],
    flight: "A device that has chosen reports as ever if the round is still open.",
    learned: "Everything is kept; the next round starts from what is known.",
    promise: UNCHANGED,
  },
  {
    id: "extend", title: "Extend", done: "asks more people",
    fields: [{ name: "horizon", label: "New horizon", type: "number", hint: "More than now. It holds from the next version on." }, OPEN_ROUND],
    flight: "A device that has chosen reports as ever.",
    learned: "Everything is kept; later rounds are as large as they would be at that many people.",
    promise: "Unchanged. Later rounds have terms of their own for the same epsilon and delta.",
  },
  {
    id: "stop", title: "Stop", done: "is stopped", danger: true,
    fields: [{ ...OPEN_ROUND, hint: "Leave it empty, and the open round ends at once. With a number it waits so long for those who chose before." }],
    flight: "A device that has chosen is late: its report is paid for and not counted, unless you give it time.",
    learned: "Everything is kept; what came in the open round is learned from if that may be. The best policy stays published. It cannot be resumed.",
    promise: "Unchanged: no later round asks anybody.",
  },
  {
    id: "retire-arm", title: "Retire an arm", done: "gives that arm to nobody from the next version on", danger: true,
    fields: [{ name: "arm", label: "Arm", type: "arm" }, { ...OPEN_ROUND, hint: "Leave it empty, and the open round waits for its people. 0 ends it at once: use that to take an arm back that does harm." }],
    flight: "A device that has chosen reports as ever, also about this arm.",
    learned: "The arm's evidence is kept; its share is 0 from the next policy on, and devices refuse a policy that says otherwise. An arm that is retired does not come back.",
    promise: UNCHANGED,
  },
  {
    id: "add-arm", title: "Add an arm", done: "tries that arm from the next version on",
    fields: [{ name: "arm", label: "Name of the new arm", type: "text" }, OPEN_ROUND],
    flight: "A device that has chosen reports as ever, and says nothing about the new arm.",
    learned: "Everything is kept; the new arm begins without evidence.",
    promise: UNCHANGED,
  },
  {
    id: "clone", title: "Clone", done: "is created",
    fields: [{ name: "name", label: "Name of the new experiment", type: "text", hint: "Lower-case letters, digits and dashes." },
      { name: "horizon", label: "Its horizon", type: "number", optional: true, hint: "Leave it empty for the same." }],
    flight: "A device that has chosen notices nothing.",
    learned: "The new experiment begins with what this one had learned before the open round, and counts people from 0.",
    promise: "Unchanged. The new one is another experiment: whoever reports there pays there, too.",
  },
  {
    id: "delete", title: "Delete", done: "is deleted", danger: true, fields: [],
    flight: "The report of a device that has chosen is refused as deleted, and nobody can join any more.",
    learned: "Nothing is kept: keys, rounds and policies are erased, and the name is never used again.",
    promise: "Unchanged: who has reported has paid, and nothing more is released.",
  },
];

/** The actions that the server says an experiment accepts where it stands. */
export const actionsFor = ({ accepts }) => ACTIONS.filter(({ id }) => accepts.includes(id));

/** Method, address and body of an action, with the texts that were typed. */
export function requestOf(action, name, typed) {
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
export const isGrave = (action, typed) => Boolean(action.danger) || (typed.seconds ?? "").trim() !== "";

/** What became of an action, in a sentence or two. */
export function outcome(action, name, answer) {
  if (action.id === "clone") return `${answer.name} is created.`;
  if (answer.changed === false) return `Nothing changed: it was so before.`;
  const waits = answer.waiting?.length ? " It holds from the next version on, when the open round is over." : "";
  return `${name} ${action.done}.${waits}`;
}

/** What is wrong, and what to do, in plain words; `what` is what was wanted. */
export function trouble(error, what) {
  if (error.status === 401) return `The token is wrong, or missing. Nothing was changed, and what you typed is still here: type the token of this server, and send it again.`;
  if (error.status === undefined) return `The server did not answer, so it is not known whether ${what}. Send it again: the same again changes nothing twice.`;
  const { field, detail, remedy } = error.problem;
  const ended = (text) => text.replace(/\.?$/, "."), begun = (text) => text[0].toUpperCase() + text.slice(1);
  return [field ? ended(`${field}: ${detail}`) : begun(ended(detail ?? error.message)), remedy && begun(ended(remedy))].filter(Boolean).join(" ");
}
