// The account of an experiment's people, in the words of the command line. Pure: no page is needed.

import { capital, count } from "./words.mjs";

/** Whether the server cannot see what waits for the open round: a shuffler has it until the batch is whole. */
export const isUnseen = (people) => people?.held.at_shuffler === null;

/** How many of the planned people rounds can count. */
export const reachable = ({ planned, out_of_reach: beyond }) => planned - beyond;

/** What has become of each of those who are planned; parts of nobody are left out. */
export function accountInWords({ planned, counted, held, refused, not_asked: notAsked, out_of_reach: beyond, replaced, unknown }) {
  const reasons = Object.entries(refused).filter(([, number]) => number), all = reasons.reduce((sum, [, number]) => sum + number, 0);
  const [least, most] = unknown ? ["at least ", "at most "] : ["", ""];
  const listed = `${reasons.map(([reason, number]) => `${reason} ${count(number)}`).join(", ")}${replaced ? " (others are asked in their place)" : ""}`;
  const parts = [[counted, "", "counted in closed rounds"], [held.in_open_round, "", "held in the open round"], [held.at_shuffler ?? 0, least, "held at the shuffler"],
    [all, "", `refused: ${listed}`], [unknown, "", "not asked or at the shuffler (not known which)"],
    [notAsked, "", "not asked"], [beyond, "", "out of reach of rounds"]];
  const said = parts.filter(([number]) => number).map(([number, before, words]) => `${before}${count(number)} ${words}`).join("; ") || "nobody";
  const more = held.needed ? ` ${capital(most)}${count(held.needed)} more close the open round.` : "";
  return `Of ${count(planned)} people planned: ${said}.${more}`;
}
