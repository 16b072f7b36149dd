// @ts-check
/** Normal probabilities, to the last digits. */

/* Rational approximations of the normal quantile, of Cephes (S. Moshier): the middle, and two tails. */
const P0 = [-59.9633501014107895267, 98.0010754185999661536, -56.6762857469070293439, 13.9312609387279679503, -1.23916583867381258016];
const Q0 = [
  1, 1.95448858338141759834, 4.67627912898881538453, 86.3602421390890590575, -225.462687854119370527, 200.260212380060660359,
  -82.0372256168333339912, 15.9056225126211695515, -1.18331621121330003142,
];
const P1 = [
  4.05544892305962419923, 31.5251094599893866154, 57.1628192246421288162, 44.08050738932008347, 14.6849561928858024014,
  2.18663306850790267539, -1.40256079171354495875e-1, -3.50424626827848203418e-2, -8.57456785154685413611e-4,
];
const Q1 = [
  1, 15.7799883256466749731, 45.3907635128879210584, 41.317203825467203044, 15.0425385692907503408, 2.50464946208309415979,
  -1.42182922854787788574e-1, -3.80806407691578277194e-2, -9.33259480895457427372e-4,
];
const P2 = [
  3.2377489177694603597, 6.91522889068984211695, 3.93881025292474443415, 1.33303460815807542389, 2.01485389549179081538e-1,
  1.23716634817820021358e-2, 3.01581553508235416007e-4, 2.65806974686737550832e-6, 6.2397453918498329373e-9,
];
const Q2 = [
  1, 6.02427039364742014255, 3.67983563856160859403, 1.37702099489081330271, 2.1623699359449663589e-1,
  1.34204006088543189037e-2, 3.28014464682127739104e-4, 2.89247864745380683936e-6, 6.79019408009981274425e-9,
];
const ROOT_2PI = 2.50662827463100050242;
const EXP_MINUS_2 = 0.13533528323661269189;

/** @param {number} x @param {number[]} coefficients the highest power first */
const polynomial = (x, coefficients) => coefficients.reduce((sum, coefficient) => sum * x + coefficient);

/** The normal number of a 64-bit word, by its upper 53 bits; finite, whatever the word. @param {bigint} word */
export const wordToNormal = (word) => normalQuantile(Math.min((Number(word >> 11n) + 0.5) * 2 ** -53, 1 - 2 ** -53));

/** The normal quantile. @param {number} share in (0, 1) */
export function normalQuantile(share) {
  if (share <= 0) return -Infinity;
  if (share >= 1) return Infinity;
  const upper = share > 1 - EXP_MINUS_2;
  const y = upper ? 1 - share : share;
  if (y > EXP_MINUS_2) {
    const middle = y - 0.5;
    const square = middle * middle;
    return (middle + middle * ((square * polynomial(square, P0)) / polynomial(square, Q0))) * ROOT_2PI;
  }
  const x = Math.sqrt(-2 * Math.log(y));
  const z = 1 / x;
  const [p, q] = x < 8 ? [P1, Q1] : [P2, Q2];
  const approximation = x - Math.log(x) / x - (z * polynomial(z, p)) / polynomial(z, q);
  return upper ? approximation : -approximation;
}

/** The logarithm of the normal distribution function. @param {number} x @returns {number} */
export function logNormal(x) {
  if (x > 0) return Math.log1p(-Math.exp(logNormal(-x)));
  return x > -3 ? Math.log(0.5 - integrateNormal(-x)) : logTail(-x);
}

/** The normal density's integral from 0 to x, by its series of positive terms. @param {number} x */
function integrateNormal(x) {
  let [term, sum] = [x, x];
  for (let k = 1; term > sum * 1e-18; k++) {
    term *= (x * x) / (2 * k + 1);
    sum += term;
  }
  return (Math.exp((-x * x) / 2) / ROOT_2PI) * sum;
}

/** The logarithm of the mass above x, at least 3, by Laplace's continued fraction. @param {number} x */
function logTail(x) {
  let fraction = x;
  for (let k = Math.ceil(60 + 2000 / (x * x)); k > 0; k--) fraction = x + k / fraction;
  return (-x * x) / 2 - Math.log(ROOT_2PI * fraction);
}

/** To the nearest whole number; of two, to the even one. @param {number} value */
export function roundToEven(value) {
  const low = Math.floor(value);
  const rest = value - low;
  return rest < 0.5 || (rest === 0.5 && low % 2 === 0) ? low : low + 1;
}
