// Addresses of views: `#/`, `#/NAME` and `#/NAME/PART`. Pure: no page is needed.

/** The experiment and the part of its page that a hash names; empty for the list; null if it is no address. */
export function parseAddress(hash) {
  if (hash === "" || hash === "#") return { name: "", part: "" };
  const found = /^#\/([^/]*)(?:\/([^/]*))?$/.exec(hash);
  if (!found) return null;
  try {
    return { name: decodeURIComponent(found[1]), part: decodeURIComponent(found[2] ?? "") };
  } catch {
    return null;
  }
}

/** The hash of an experiment, or of a part of its page. */
export const addressOf = (name, part = "") => `#/${encodeURIComponent(name)}${part ? `/${part}` : ""}`;
