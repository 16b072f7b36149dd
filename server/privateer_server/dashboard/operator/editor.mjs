// Creates an experiment: a spec is written as TOML, and what the server refuses stands beside its line.

import { formatAddress } from "../address.mjs";
import { el, replace } from "../dom.mjs";
import { describeTrouble } from "./actions.mjs";
import { tokenBox } from "./fields.mjs";
import { hasToken, send } from "./token.mjs";
import { findLine, parseFaultLine } from "./toml.mjs";

const LINES = 24;
let draft = null;

/** Show the editor in a place until `signal` ends; what was typed stays until the page is left. */
export function showEditor(place, noteAnswer, signal) {
  const editor = new Editor(signal);
  replace(place, el("p", {}, el("a", { href: "#/" }, "← All experiments")), el("h1", {}, "Create an experiment"), editor.place);
  if (draft === null) editor.loadExample(signal);
  else editor.setText(draft);
  return { goTo() {} };
}

class Editor {
  constructor(signal) {
    this.token = tokenBox(signal);
    this.text = el("textarea", { id: "spec-text", rows: String(LINES), wrap: "off", spellcheck: "false", autocomplete: "off", autocapitalize: "off",
      "aria-describedby": "spec-said spec-wrong", oninput: () => this.handleInput(), onscroll: () => this.handleScroll() });
    this.numbers = el("div", { class: "numbers", "aria-hidden": "true" });
    this.beside = el("div", { class: "beside-line", hidden: true, "aria-hidden": "true" });
    this.wrong = el("div", { id: "spec-wrong", role: "alert", class: "wrong" });
    this.said = el("p", { role: "status" });
    this.button = el("button", { type: "submit", id: "create-it", class: "main" }, "Create it");
    this.place = el("div", { class: "panel" }, this.token.place,
      el("form", { onsubmit: (event) => this.submit(event) },
        el("label", { for: "spec-text" }, "Spec, as TOML"),
        el("div", { class: "editor" }, this.numbers, el("div", { class: "written" }, this.text, this.beside)),
        this.wrong,
        el("p", { class: "hint", id: "spec-said" }, "docs/configuration.md has every field. Tab leaves the text. Plan it first, without asking anybody for data: privateer simulate, privateer plan."),
        el("p", { class: "note" }, "It is published at once: devices that know its name can join from now on. What it promises to a person is fixed with that, and nobody can change it later."),
        el("p", { class: "actions" }, this.button), this.said));
  }

  /** Begin with an example of the server's. */
  async loadExample(signal) {
    try {
      const response = await fetch("dashboard/operator/start.toml", { cache: "no-cache", signal });
      if (response.ok && !this.text.value) this.setText(await response.text());
    } catch {
      // An empty text will do.
    }
    this.numberLines();
  }

  setText(text) {
    this.text.value = text;
    this.numberLines();
  }

  handleInput() {
    draft = this.text.value;
    this.showFault(null, "");
    this.numberLines();
  }

  numberLines() {
    const lines = this.text.value.split("\n").length;
    if (this.numbers.children.length === lines) return;
    replace(this.numbers, Array.from({ length: lines }, (_, n) => el("span", {}, String(n + 1))));
  }

  handleScroll() {
    this.numbers.scrollTop = this.text.scrollTop;
    this.placeMark();
  }

  /** Where a line begins, from the top of what is seen. */
  placeMark() {
    const mark = this.numbers.children[this.line - 1];
    if (!mark) return;
    const top = mark.offsetTop - this.text.scrollTop;
    this.beside.hidden = top < 0 || top > this.text.clientHeight - mark.offsetHeight;
    this.beside.style.setProperty("top", `${top}px`);
  }

  /** Say what is wrong, beside its line where it has one. */
  showFault(line, text) {
    this.numbers.querySelector(".at-fault")?.classList.remove("at-fault");
    Object.assign(this, { line });
    this.beside.hidden = true;
    if (!text) {
      this.text.removeAttribute("aria-invalid");
      return replace(this.wrong);
    }
    this.text.setAttribute("aria-invalid", "true");
    replace(this.wrong, line ? el("p", {}, el("strong", {}, `Line ${line}. `), text) : el("p", {}, text));
    this.text.focus();
    if (!line) return;
    this.selectLine(line);
    this.numbers.children[line - 1]?.classList.add("at-fault");
    replace(this.beside, `◀ ${text}`);
    this.placeMark();
  }

  /** Choose a line in the text, and bring it to sight. */
  selectLine(line) {
    const lines = this.text.value.split("\n"), from = lines.slice(0, line - 1).reduce((sum, previous) => sum + previous.length + 1, 0);
    this.text.setSelectionRange(from, from + (lines[line - 1] ?? "").length);
    const height = this.text.scrollHeight / Math.max(1, lines.length);
    if (height * line > this.text.scrollTop + this.text.clientHeight || height * (line - 1) < this.text.scrollTop) this.text.scrollTop = Math.max(0, height * (line - 4));
  }

  async submit(event) {
    event.preventDefault();
    this.showFault(null, "");
    this.said.textContent = "";
    if (!hasToken()) return this.token.ask("Type the token first.");
    this.button.disabled = true;
    this.said.textContent = "The server checks it …";
    try {
      const created = await send("POST", "experiments", this.text.value, "application/toml");
      draft = null;
      location.hash = formatAddress(created.name);
    } catch (error) {
      this.said.textContent = "";
      this.showRefusal(error);
    } finally {
      this.button.disabled = false;
    }
  }

  showRefusal(error) {
    const text = describeTrouble(error, "the experiment was created");
    if (error.status === 401) return this.token.ask(text);
    const { field, detail } = error.problem ?? {};
    return this.showFault(findLine(this.text.value, field) ?? parseFaultLine(detail ?? ""), text);
  }
}
