// Addresses of views: `#/`, `#/NAME`, `#/NAME/PART`, and `#new`. Pure: no page is needed.

/** Stands for the view that creates an experiment; no experiment has such a name. */
export const NEW = "+new";

/** The experiment and the part of its page that a hash names; empty for the list; null if it is no address. */
export function parseAddress(hash) {
  if (hash === "" || hash === "#") return { name: "", part: "" };
  if (hash === "#new") return { name: NEW, part: "" };
  const match = /^#\/([^/]*)(?:\/([^/]*))?$/.exec(hash);
  if (!match) return null;
  try {
    return { name: decodeURIComponent(match[1]), part: decodeURIComponent(match[2] ?? "") };
  } catch {
    return null;
  }
}

/** The hash of an experiment, or of a part of its page. */
export const formatAddress = (name, part = "") => `#/${encodeURIComponent(name)}${part ? `/${part}` : ""}`;
