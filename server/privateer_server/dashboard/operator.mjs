// What there is for operators: at the private listener alone. The public listener does not even serve it.

/** The forms for operators; null on a page that strangers reach. */
export const operator = document.body.dataset.listener === "private" ? await import("./operator/forms.mjs") : null;
