// @ts-check
/** What is read in a spec for deciding alone: also the features of arms, actions, and the domain of points. */

import { requireKnown } from "../errors.js";
import { makeArmFeatures } from "../features.js";
import { Spec } from "../spec.js";

const ACTIONS_MAX = 20_000;
const DIMENSION_MAX = 64;

export class DeciderSpec extends Spec {
  /** @param {any} document JSON as decoded @param {Map<string, any>} kinds of policies, by the names of algorithms */
  constructor(document, kinds) {
    super(document, kinds);
    this.domain = document.domain ?? null;
    this.options = this.arms.length ? this.arms : listOptions(document);
  }

  /** @param {any} document */
  readFeatures(document) {
    return this.hasTables ? super.readFeatures(document) : makeArmFeatures(document.context, this.arms);
  }
}

/** What can be chosen where there are no arms: rows of actions, or coordinates of points. @param {any} document @returns {string[]} */
function listOptions({ actions, domain }) {
  const rows = Number(actions?.vectors?.length ?? actions?.count ?? 0);
  const coordinates = Number(domain?.dimension ?? 0);
  requireKnown(rows <= ACTIONS_MAX && coordinates <= DIMENSION_MAX, "actions");
  return actions ? Array.from({ length: rows }, (_, row) => String(row)) : Array.from({ length: coordinates }, (_, i) => `x${i + 1}`);
}
