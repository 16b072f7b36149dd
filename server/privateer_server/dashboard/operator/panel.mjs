// What an operator may change of an experiment: a form for each action, which says what it means before it is sent.

import { formatAddress } from "../address.mjs";
import { el, makeFactList, replace } from "../dom.mjs";
import { makeTable } from "../tables.mjs";
import { selectActions, findFault, describeGravity, isGrave, describeOutcome, makeRequest, describeTrouble } from "./actions.mjs";
import { Field, tokenBox } from "./fields.mjs";
import { hasToken, send } from "./token.mjs";

const CHANGES = await (await fetch("dashboard/operator/changes.json", { cache: "no-cache" })).json();

/** The arms that are not retired. */
const listActiveArms = ({ experiment }) => (experiment.arms ?? []).filter((arm) => !(experiment.retired_arms ?? []).includes(arm));

/** The panel; a form that is open stays as it is while the experiment goes on. `changed` is called after a change. */
export class OperatorPanel {
  constructor(name, signal, changed) {
    Object.assign(this, { name, changed, open: null, stamp: "" });
    this.token = tokenBox(signal);
    this.buttons = el("div", { class: "actions", role: "group", "aria-label": "What you can do" });
    this.form = el("div");
    this.said = el("p", { role: "status", class: "said", tabindex: "-1" });
    this.log = el("div");
    const logButton = el("button", { type: "button", id: "show-log", onclick: () => this.showLog() }, "Show what was changed, when, and by which token");
    this.place = el("div", {}, this.token.place, this.buttons, this.form, this.said, logButton, this.log);
  }

  /** Show what can be done where the experiment stands. */
  show(place, facts) {
    this.facts = facts;
    if (!place.contains(this.place)) replace(place, this.place);
    const stamp = JSON.stringify([facts.allowed_changes, facts.spec.experiment.arms, facts.spec.experiment.retired_arms]);
    if (stamp === this.stamp) return;
    this.stamp = stamp;
    replace(this.buttons, selectActions(CHANGES, facts).map((action) => el("button", { type: "button", id: `do-${action.id}`, class: action.is_final ? "danger" : null,
      "aria-expanded": String(this.open?.id === action.id), onclick: () => this.openForm(action) }, action.title)));
    if (this.open && !selectActions(CHANGES, facts).includes(this.open)) this.closeForm();
  }

  markOpenAction() {
    for (const button of this.buttons.children) button.setAttribute("aria-expanded", String(button.id === `do-${this.open?.id}`));
  }

  openForm(action) {
    this.open = action;
    this.said.textContent = "";
    this.fields = new Map(action.fields.map((field) => [field.name, new Field(`f-${action.id}-${field.name}`,
      { ...field, options: field.type === "arm" ? listActiveArms(this.facts.spec) : null }, () => this.updateConfirmation())]));
    this.confirm = new Field(`f-${action.id}-confirm`, { label: `Type ${this.name} to confirm` });
    this.wrong = el("p", { class: "wrong", role: "alert" });
    this.button = el("button", { type: "submit", id: `send-${action.id}`, class: action.is_final ? "main grave" : "main" }, action.title);
    const title = el("h3", { id: "action-title", tabindex: "-1" }, `${action.title}: ${this.name}`);
    replace(this.form, el("form", { class: "action", "aria-labelledby": "action-title", onsubmit: (event) => this.submit(event),
      onkeydown: (event) => event.key === "Escape" && this.cancel() }, title,
    makeFactList([["Who has chosen, and not reported", action.flight], ["What was learned", action.learned], ["The promise to a person", action.promise]]),
    [...this.fields.values()].map(({ place }) => place), this.confirm.place, this.wrong,
    el("p", { class: "actions" }, this.button, el("button", { type: "button", onclick: () => this.cancel() }, "Cancel"))));
    this.updateConfirmation();
    this.markOpenAction();
    title.focus();
  }

  get typed() {
    return Object.fromEntries([...this.fields].map(([name, field]) => [name, field.value]));
  }

  /** Ask for the name where something cannot be undone, or a round may be given up. */
  updateConfirmation() {
    this.confirm.place.hidden = !isGrave(this.open, this.typed) || this.findRefusal() !== null;
  }

  cancel() {
    const id = this.open.id;
    this.closeForm();
    document.getElementById(`do-${id}`)?.focus();
  }

  closeForm() {
    this.open = null;
    replace(this.form);
    this.markOpenAction();
  }

  /** What is wrong with a value: `[field, text]`. */
  findRefusal() {
    for (const facts of this.open.fields) {
      const field = this.fields.get(facts.name), text = findFault(facts, field.value.trim());
      if (text) return [field, text];
    }
    return null;
  }

  /** What is wrong before anything is sent: `[field, text]`; the name is asked for once the values can be sent. */
  fault() {
    const refusal = this.findRefusal();
    if (refusal) return refusal;
    const isWrong = isGrave(this.open, this.typed) && this.confirm.value.trim() !== this.name;
    return isWrong ? [this.confirm, `${describeGravity(this.open)}: type ${this.name} here to confirm.`] : null;
  }

  async submit(event) {
    event.preventDefault();
    const action = this.open, fields = [...this.fields.values(), this.confirm];
    for (const field of fields) field.showFault("");
    this.wrong.textContent = "";
    const fault = this.fault();
    if (fault) {
      fault[0].showFault(fault[1]);
      return fault[0].input.focus();
    }
    if (!hasToken()) return this.token.ask("Type the token first.");
    this.button.disabled = true;
    try {
      const { method, path, body } = makeRequest(action, this.name, this.typed), answer = await send(method, path, body);
      this.showOutcome(action, answer);
    } catch (error) {
      this.showRefusal(action, error);
    } finally {
      this.button.disabled = false;
    }
  }

  showOutcome(action, answer) {
    this.closeForm();
    replace(this.said, describeOutcome(action, this.name, answer), action.id === "clone" ? [" ", el("a", { href: formatAddress(answer.name) }, "Open it")] : null);
    this.said.focus();
    this.changed();
    if (this.log.hasChildNodes()) this.showLog();
  }

  showRefusal(action, error) {
    const text = describeTrouble(error, "it was done"), last = error.problem?.field?.split(".").at(-1), field = this.fields.get(last);
    if (error.status === 401) this.token.ask(text);
    else if (field) {
      field.showFault(text);
      field.input.focus();
    } else this.wrong.textContent = text;
  }

  async showLog() {
    if (!hasToken()) return this.token.ask("Type the token first.");
    try {
      const { changes } = await send("GET", `experiments/${encodeURIComponent(this.name)}/log`);
      const rows = [...changes].reverse().map(({ at, action, detail, operator, version, since_version: since }) => [at, action, detail || null, operator, version, since ?? "the next version"]);
      replace(this.log, makeTable("log", "Changes, the newest first", ["when", "what", "detail", "by", "at version", "since version"], rows));
    } catch (error) {
      if (error.status === 401) this.token.ask(describeTrouble(error, ""));
      else replace(this.log, el("p", { class: "wrong", role: "alert" }, error.status === undefined ? "The server did not answer. Ask for the log again." : describeTrouble(error, "")));
    }
  }
}
