// What an operator may change of an experiment: a form for each action, which says what it means before it is sent.

import { addressOf } from "../address.mjs";
import { el, facts as pairs, replace } from "../dom.mjs";
import { table } from "../tables.mjs";
import { actionsFor, faultOf, graveness, isGrave, outcome, requestOf, trouble } from "./actions.mjs";
import { Field, tokenBox } from "./fields.mjs";
import { isKept, send } from "./token.mjs";

const CHANGES = await (await fetch("dashboard/operator/changes.json", { cache: "no-cache" })).json();

/** The arms that are not retired. */
const armsLeft = ({ experiment }) => (experiment.arms ?? []).filter((one) => !(experiment.retired ?? []).includes(one));

/** The panel; a form that is open stays as it is while the experiment goes on. `changed` is called after a change. */
export class OperatorPanel {
  constructor(name, signal, changed) {
    Object.assign(this, { name, changed, open: null, stamp: "" });
    this.token = tokenBox(signal);
    this.buttons = el("div", { class: "actions", role: "group", "aria-label": "What you can do" });
    this.form = el("div");
    this.said = el("p", { role: "status", class: "said", tabindex: "-1" });
    this.log = el("div");
    const asked = el("button", { type: "button", id: "show-log", onclick: () => this.showLog() }, "Show what was changed, when, and by which token");
    this.place = el("div", {}, this.token.place, this.buttons, this.form, this.said, asked, this.log);
  }

  /** Show what can be done where the experiment stands. */
  show(place, facts) {
    this.facts = facts;
    if (!place.contains(this.place)) replace(place, this.place);
    const stamp = JSON.stringify([facts.accepts, facts.spec.experiment.arms, facts.spec.experiment.retired]);
    if (stamp === this.stamp) return;
    this.stamp = stamp;
    replace(this.buttons, actionsFor(CHANGES, facts).map((action) => el("button", { type: "button", id: `do-${action.id}`, class: action.is_final ? "danger" : null,
      "aria-expanded": String(this.open?.id === action.id), onclick: () => this.begin(action) }, action.title)));
    if (this.open && !actionsFor(CHANGES, facts).includes(this.open)) this.end();
  }

  mark() {
    for (const one of this.buttons.children) one.setAttribute("aria-expanded", String(one.id === `do-${this.open?.id}`));
  }

  begin(action) {
    this.open = action;
    this.said.textContent = "";
    this.fields = new Map(action.fields.map((field) => [field.name, new Field(`f-${action.id}-${field.name}`,
      { ...field, options: field.type === "arm" ? armsLeft(this.facts.spec) : null }, () => this.weigh())]));
    this.confirm = new Field(`f-${action.id}-confirm`, { label: `Type ${this.name} to confirm` });
    this.wrong = el("p", { class: "wrong", role: "alert" });
    this.button = el("button", { type: "submit", id: `send-${action.id}`, class: action.is_final ? "main grave" : "main" }, action.title);
    const title = el("h3", { id: "action-title", tabindex: "-1" }, `${action.title}: ${this.name}`);
    replace(this.form, el("form", { class: "action", "aria-labelledby": "action-title", onsubmit: (event) => this.sent(event),
      onkeydown: (event) => event.key === "Escape" && this.cancel() }, title,
    pairs([["Who has chosen, and not reported", action.flight], ["What was learned", action.learned], ["The promise to a person", action.promise]]),
    [...this.fields.values()].map(({ place }) => place), this.confirm.place, this.wrong,
    el("p", { class: "actions" }, this.button, el("button", { type: "button", onclick: () => this.cancel() }, "Cancel"))));
    this.weigh();
    this.mark();
    title.focus();
  }

  get typed() {
    return Object.fromEntries([...this.fields].map(([name, field]) => [name, field.value]));
  }

  /** Ask for the name where something cannot be undone, or a round may be given up. */
  weigh() {
    this.confirm.place.hidden = !isGrave(this.open, this.typed) || this.refusal() !== null;
  }

  cancel() {
    const id = this.open.id;
    this.end();
    document.getElementById(`do-${id}`)?.focus();
  }

  end() {
    this.open = null;
    replace(this.form);
    this.mark();
  }

  /** What is wrong with a value: `[field, text]`. */
  refusal() {
    for (const facts of this.open.fields) {
      const field = this.fields.get(facts.name), text = faultOf(facts, field.value.trim());
      if (text) return [field, text];
    }
    return null;
  }

  /** What is wrong before anything is sent: `[field, text]`; the name is asked for once the values can be sent. */
  fault() {
    const refusal = this.refusal();
    if (refusal) return refusal;
    const isWrong = isGrave(this.open, this.typed) && this.confirm.value.trim() !== this.name;
    return isWrong ? [this.confirm, `${graveness(this.open)}: type ${this.name} here to confirm.`] : null;
  }

  async sent(event) {
    event.preventDefault();
    const action = this.open, all = [...this.fields.values(), this.confirm];
    for (const one of all) one.blame("");
    this.wrong.textContent = "";
    const fault = this.fault();
    if (fault) {
      fault[0].blame(fault[1]);
      return fault[0].input.focus();
    }
    if (!isKept()) return this.token.ask("Type the token first.");
    this.button.disabled = true;
    try {
      const { method, path, body } = requestOf(action, this.name, this.typed), answer = await send(method, path, body);
      this.done(action, answer);
    } catch (error) {
      this.refused(action, error);
    } finally {
      this.button.disabled = false;
    }
  }

  done(action, answer) {
    this.end();
    replace(this.said, outcome(action, this.name, answer), action.id === "clone" ? [" ", el("a", { href: addressOf(answer.name) }, "Open it")] : null);
    this.said.focus();
    this.changed();
    if (this.log.hasChildNodes()) this.showLog();
  }

  refused(action, error) {
    const text = trouble(error, "it was done"), last = error.problem?.field?.split(".").at(-1), field = this.fields.get(last);
    if (error.status === 401) this.token.ask(text);
    else if (field) {
      field.blame(text);
      field.input.focus();
    } else this.wrong.textContent = text;
  }

  async showLog() {
    if (!isKept()) return this.token.ask("Type the token first.");
    try {
      const { changes } = await send("GET", `experiments/${encodeURIComponent(this.name)}/log`);
      const rows = [...changes].reverse().map(({ at, action, detail, who, version, since }) => [at, action, detail || null, who, version, since ?? "the next version"]);
      replace(this.log, table("log", "Changes, the newest first", ["when", "what", "detail", "by", "at version", "since version"], rows));
    } catch (error) {
      if (error.status === 401) this.token.ask(trouble(error, ""));
      else replace(this.log, el("p", { class: "wrong", role: "alert" }, error.status === undefined ? "The server did not answer. Ask for the log again." : trouble(error, "")));
    }
  }
}
