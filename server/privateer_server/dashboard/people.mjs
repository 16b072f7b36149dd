// The account of an experiment's people, in the words of the command line. Pure: no page is needed.

import { capitalize, formatNumber } from "./words.mjs";

/** Whether the server cannot see what waits for the open round: a shuffler has it until the batch is whole. */
export const isUnseen = (people) => people?.held.at_shuffler === null;

/** How many of the planned people rounds can count. */
export const countReachable = ({ planned, out_of_reach: beyond }) => planned - beyond;

/** What has become of each of those who are planned; parts of nobody are left out. */
export function describeAccount({ planned, counted, held, refused, not_asked: notAsked, out_of_reach: beyond, replaced, unknown }) {
  const reasons = Object.entries(refused).filter(([, number]) => number), nRefused = reasons.reduce((sum, [, number]) => sum + number, 0);
  const [atLeast, atMost] = unknown ? ["at least ", "at most "] : ["", ""];
  const listed = `${reasons.map(([reason, number]) => `${reason} ${formatNumber(number)}`).join(", ")}${replaced ? " (others are asked in their place)" : ""}`;
  const parts = [[counted, "", "counted in closed rounds"], [held.in_open_round, "", "held in the open round"], [held.at_shuffler ?? 0, atLeast, "held at the shuffler"],
    [nRefused, "", `refused: ${listed}`], [unknown, "", "not asked or at the shuffler (not known which)"],
    [notAsked, "", "not asked"], [beyond, "", "out of reach of rounds"]];
  const account = parts.filter(([number]) => number).map(([number, before, words]) => `${before}${formatNumber(number)} ${words}`).join("; ") || "nobody";
  const remainder = held.needed ? ` ${capitalize(atMost)}${formatNumber(held.needed)} more close the open round.` : "";
  return `Of ${formatNumber(planned)} people planned: ${account}.${remainder}`;
}
