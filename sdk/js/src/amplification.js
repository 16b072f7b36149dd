// @ts-check
/** What a shuffled batch of randomized responses costs a person: the privacy-blanket bound (docs/foreign-clients/terms.md). */

const TAIL = 1e-20;
const ROUNDING = 1 + 1e-5;
const INTERVALS = 32;

/**
 * An upper bound of delta at epsilon, for a batch of which `honest` reports are randomized responses.
 * @param {number} epsilon @param {number} local pure epsilon of a report @param {number} symbols @param {number} honest
 * @param {number} share the chance with which coins put each of the others in the person's group, which is a batch of its own
 */
export function shuffledDelta(epsilon, local, symbols, honest, share = 1) {
  const alone = epsilon >= local ? 0 : Math.min(1, ((1 + 1e-9) * -Math.expm1(epsilon - local)) / (1 + Math.exp(-local)));
  return Math.min(alone, blanket(epsilon, local, symbols, honest, share));
}

/** @param {number} epsilon @param {number} local @param {number} symbols @param {number} honest @param {number} share */
function blanket(epsilon, local, symbols, honest, share) {
  if (local <= epsilon) return 4 * TAIL;
  const weight = 1 / (Math.exp(local) + symbols - 1);
  const each = share * weight;
  const pairs = masses(honest - 1, 2 * each);
  const most = pairs.length ? pairs[pairs.length - 1][0] : 0;
  const rest = roundedDown(honest - 1 - most, ((symbols - 2) * each) / (1 - 2 * each));
  let sum = 0;
  for (const [own, chance] of [[1, 2 / symbols], [0, 1 - 2 / symbols]]) {
    for (const [pair, mass] of pairs) {
      const excess = excesses(pair + own, rest.map(([other]) => pair + other + 1), epsilon, local);
      sum += chance * mass * rest.reduce((part, [, left], i) => part + left * excess[i], 0);
    }
  }
  return Math.min(1, symbols * (weight * sum + 4 * TAIL) * ROUNDING);
}

/**
 * E[(slope A - offset)_+] / messages for A ~ Bin(pairs, 1/2), for some numbers of messages.
 * @param {number} pairs @param {number[]} messages rising @param {number} epsilon @param {number} local
 */
function excesses(pairs, messages, epsilon, local) {
  const [e, more] = [Math.exp(epsilon), Math.expm1(local)];
  const slope = more * (1 + e);
  const edges = messages.map((one) => (more * e * pairs + Math.expm1(epsilon) * one) / slope);
  const [first, last] = [Math.floor(edges[0]) + 1, Math.floor(edges[edges.length - 1]) + 1];
  const tail = tailsFrom(pairs, first, last);
  return edges.map((edge, i) => {
    const least = Math.floor(edge) + 1;
    if (least > pairs) return 0;
    // Both terms are positive, so that nothing cancels.
    const [reached, beyond] = tail[least - first] ?? [0, 0];
    return (slope * (beyond + (least - edge) * reached)) / messages[i];
  });
}

/**
 * P(A >= a) and E[(A - a)_+] for A ~ Bin(trials, 1/2), for a from `first` to `last`.
 * @param {number} trials @param {number} first @param {number} last @returns {[number, number][]}
 */
function tailsFrom(trials, first, last) {
  if (first > trials) return [];
  const masses = [Math.exp(logChoose(trials, first) - trials * Math.LN2)];
  // These are upper tails: masses fall ever faster, until what is left is nothing beside the last that is asked for.
  for (let a = first; a < trials; a++) {
    masses.push((masses[a - first] * (trials - a)) / (a + 1));
    if (a + 1 >= last && masses[a + 1 - first] <= 1e-18 * masses[last - first]) break;
  }
  /** @type {[number, number][]} */
  const found = new Array(masses.length);
  let [reached, beyond] = [0, 0];
  for (let i = masses.length - 1; i >= 0; i--) {
    beyond += reached;
    reached += masses[i];
    found[i] = [reached, beyond];
  }
  return found;
}

/** First and last number of a range outside which a binomial has TAIL on either side (Bernstein).
 * @param {number} trials @param {number} p @returns {[number, number]} */
function range(trials, p) {
  const log = -Math.log(TAIL);
  const width = Math.sqrt(2 * trials * p * (1 - p) * log) + log;
  return [Math.max(0, Math.floor(trials * p - width)), Math.min(trials, Math.ceil(trials * p + width))];
}

/** Points of a binomial without its tails, and their masses. @param {number} trials @param {number} p */
function masses(trials, p) {
  const [low, high] = range(trials, p);
  const logs = [Math.log(p), Math.log1p(-p)];
  /** @type {[number, number][]} */
  const found = [];
  for (let k = low; k <= high; k++) found.push([k, Math.exp(logChoose(trials, k) + times(k, logs[0]) + times(trials - k, logs[1]))]);
  return found;
}

/** 0 times infinity is 0 here. @param {number} count @param {number} log */
const times = (count, log) => (count === 0 ? 0 : count * log);

/** A binomial rounded down to the lower ends of a few intervals. @param {number} trials @param {number} p */
function roundedDown(trials, p) {
  const all = masses(trials, p);
  const [low, high] = [all[0][0], all[all.length - 1][0]];
  const starts = Array.from({ length: INTERVALS }, (_, i) => Math.trunc(low + (i * (high + 1 - low)) / INTERVALS));
  const points = starts.filter((point, i) => i === 0 || point !== starts[i - 1]);
  const below = points.map((point) => all.reduce((sum, [k, mass]) => (k < point ? sum + mass : sum), 0));
  below[0] = 0;
  return points
    .map((point, i) => /** @type {[number, number]} */ ([point, (i + 1 < points.length ? below[i + 1] : 1) - below[i]]))
    .filter(([, mass]) => mass > 0);
}

/** @param {number} n @param {number} k */
const logChoose = (n, k) => logFactorial(n) - logFactorial(k) - logFactorial(n - k);

const SMALL = [0];
for (let n = 1; n < 256; n++) SMALL.push(SMALL[n - 1] + Math.log(n));

/** Stirling's series, whose next term is below 1e-18 from 256 on. @param {number} n */
function logFactorial(n) {
  if (n < SMALL.length) return SMALL[n];
  const r = 1 / n;
  return (n + 0.5) * Math.log(n) - n + 0.5 * Math.log(2 * Math.PI) + r / 12 - r ** 3 / 360 + r ** 5 / 1260;
}
