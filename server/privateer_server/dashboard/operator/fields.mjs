// Parts of forms: a labelled field with its hint and its error, and where the token is typed.

import { el, replace } from "../dom.mjs";
import { forgetToken, hasToken, keepToken, onTokenChange } from "./token.mjs";

/** A field with a label, a hint, and room for what is wrong with it. */
export class Field {
  constructor(id, { label, type = "text", hint = "", optional = false, options = null }, oninput = null) {
    this.id = id;
    const about = [hint ? `${id}-hint` : "", `${id}-error`].filter(Boolean).join(" ");
    const shared = { id, "aria-describedby": about, oninput, autocomplete: "off", spellcheck: "false" };
    this.input = options
      ? el("select", shared, options.map((option) => el("option", { value: option }, option)))
      : el("input", { ...shared, type: type === "number" ? "text" : type, inputmode: type === "number" ? "decimal" : null });
    this.error = el("p", { class: "wrong", id: `${id}-error` });
    this.place = el("div", { class: "field" }, el("label", { for: id }, label, optional ? el("span", { class: "muted" }, " (may be empty)") : null),
      this.input, hint ? el("p", { class: "hint", id: `${id}-hint` }, hint) : null, this.error);
  }

  get value() {
    return this.input.value;
  }

  /** Say what is wrong with it; empty: nothing. */
  showFault(text) {
    this.error.textContent = text;
    if (text) this.input.setAttribute("aria-invalid", "true");
    else this.input.removeAttribute("aria-invalid");
  }
}

const SAFE = /^(localhost|127(\.\d+){3}|\[::1\])$/;

/** Where the token is typed, and forgotten; one of them on a page. */
export function tokenBox(signal) {
  const place = el("div", { class: "token" });
  const field = new Field("token", { label: "Admin token", type: "password", hint: "This page keeps it in memory until you leave or reload it, and for half an hour at most while you do nothing. It goes to this server alone." });
  const form = el("form", { onsubmit: (event) => {
    event.preventDefault();
    if (!field.value.trim()) return field.showFault("Type the token first.");
    field.showFault("");
    keepToken(field.value);
    field.input.value = "";
  } }, field.place, el("button", { type: "submit", id: "use-token" }, "Use it"));
  const tokenForm = location.protocol === "https:" || SAFE.test(location.hostname) ? null
    : el("p", { class: "note" }, "This page came without TLS. Whoever reads the network between you and the server can read the token.");
  const keptNote = el("p", {}, "A token is kept in the memory of this page. ", el("button", { type: "button", id: "forget-token", onclick: () => { forgetToken(); field.input.focus(); } }, "Forget it"));
  const show = (is) => replace(place, is ? keptNote : [tokenForm, form]);
  onTokenChange(show, signal);
  show(hasToken());
  return {
    place,
    /** Ask for the token, since there is none or it is wrong. */
    ask(text) {
      forgetToken();
      field.showFault(text);
      field.input.focus();
    },
  };
}
