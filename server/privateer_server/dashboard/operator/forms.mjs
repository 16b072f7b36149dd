// What the page has for operators.

export { showEditor } from "./editor.mjs";
export { OperatorPanel } from "./panel.mjs";
export { fetchRoundStart } from "./ages.mjs";
