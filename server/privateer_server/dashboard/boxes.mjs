// The geometry of bins: slices through boxes, rectangles, and who is where. Pure: no page is needed.

/** The arm with the largest share, null where several have it; and whether others are tried as well. Shares are rounded, so ties are equal. */
export function findLeader(arms) {
  const largestShare = Math.max(...Object.values(arms)), first = Object.keys(arms).filter((arm) => arms[arm] === largestShare);
  return { arm: first.length === 1 ? first[0] : null, several: Object.values(arms).filter((share) => share > 0).length > 1 };
}

/** The columns along which some bin is cut, those with most edges first. */
export function cutColumns(bins) {
  const dimension = bins[0].lower.length, edges = Array.from({ length: dimension }, () => new Set());
  for (const { lower, upper } of bins) {
    for (let j = 0; j < dimension; j++) edges[j].add(lower[j]).add(upper[j]);
  }
  return edges.map((positions, j) => ({ column: j, edges: positions.size })).filter(({ edges: size }) => size > 2)
    .sort((first, second) => second.edges - first.edges || first.column - second.column).map(({ column }) => column);
}

/** Whether a column is a number's or a rank's, of which bins or the spec's features say the ends; others are yes or no. */
export const isScale = (bins, column, name, features) => findEdgeValues(bins, column, name).size > 0 || endsOf(name, features) !== null;

/** The values at both ends of a column, by the spec's feature of its name; null where it is yes or no, or unknown. */
function endsOf(name, features) {
  const { low, high, quantiles, levels, ordered } = features?.[name] ?? {};
  if (typeof low === "number" && typeof high === "number") return [low, high];
  if (Array.isArray(quantiles)) return [quantiles[0], quantiles.at(-1)];
  return ordered && Array.isArray(levels) ? [levels[0], levels.at(-1)] : null;
}

/** The two columns that a map of these bins shows at first: scales, if there are; the second is -1 where one is enough. */
export function firstAxes(bins, columns = [], features = undefined) {
  const scaled = (j) => isScale(bins, j, columns[j], features);
  const cut = cutColumns(bins).sort((first, second) => scaled(second) - scaled(first)), dimension = bins[0].lower.length;
  if (dimension === 1) return [0, -1];
  if (dimension === 2) return [0, 1];
  if (cut.length === 0) return [0, -1];
  return cut.length === 1 ? [cut[0], -1] : [Math.min(cut[0], cut[1]), Math.max(cut[0], cut[1])];
}

/** Whether a place is in a bin along a column; the upper end of the space belongs to the last bins. */
const within = (bin, column, place) => bin.lower[column] <= place && (place < bin.upper[column] || bin.upper[column] === 1);

/** Indices of the bins that a slice meets: `at` has the place along every column, `axes` those that are free. */
export function sliceBins(bins, axes, at) {
  const fixed = at.map((_, j) => j).filter((j) => !axes.includes(j));
  const indices = [];
  bins.forEach((bin, index) => {
    if (fixed.every((j) => within(bin, j, at[j]))) indices.push(index);
  });
  return indices;
}

/** The index of the bin of a place, -1 if there is none. */
export const findBin = (bins, at) => bins.findIndex((bin) => at.every((place, j) => within(bin, j, place)));

/** The rectangle of a bin in a drawing of `width` by `height`; the second axis goes up. */
export function rectangle(bin, [horizontal, vertical], width, height) {
  const x = bin.lower[horizontal] * width, right = bin.upper[horizontal] * width;
  if (vertical < 0) return { x, y: 0, width: right - x, height };
  const y = (1 - bin.upper[vertical]) * height;
  return { x, y, width: right - x, height: (1 - bin.lower[vertical]) * height - y };
}

/** The path of many rectangles: a drawing of thousands of bins has few elements. */
export function makePath(rectangles) {
  const round = (value) => Math.round(value * 100) / 100;
  return rectangles
    .map(({ x, y, width, height }) => `M${round(x)} ${round(y)}h${round(width)}v${round(height)}h${round(-width)}z`).join("");
}

/** The place in the next bin along an axis, across parts in which nobody can be; the same place where there is none. */
export function moveAcross(bins, at, axis, forward) {
  const level = bins.filter((bin) => at.every((place, j) => j === axis || within(bin, j, place))), next = [...at];
  const edges = forward ? level.map(({ lower }) => lower[axis]).filter((edge) => edge > at[axis])
    : level.map(({ upper }) => upper[axis]).filter((edge) => edge <= at[axis] && edge < 1);
  if (edges.length) next[axis] = forward ? Math.min(...edges) : Math.max(...edges) - 1e-9;
  return next;
}

/** Which share of the drawing each arm leads in; where several have the same share none does. */
export function measureAreas(bins, indices, axes, leads) {
  const areaByArm = new Map();
  for (const index of indices) {
    if (leads[index].arm === null) continue;
    const { width, height } = rectangle(bins[index], axes, 1, 1);
    areaByArm.set(leads[index].arm, (areaByArm.get(leads[index].arm) ?? 0) + width * height);
  }
  return areaByArm;
}

/** Values at edges along a column. */
function findEdgeValues(bins, column, name) {
  const valueByEdge = new Map();
  for (const { lower, upper, where } of bins) {
    const condition = where.find(({ kind, feature }) => kind === "between" && feature === name);
    if (condition) valueByEdge.set(lower[column], condition.low).set(upper[column], condition.high);
  }
  return valueByEdge;
}

/**
 * Ticks along a column, `{at, value}`: the values of the edges where bins say them, otherwise the ends by the spec's
 * feature, or no and yes where the column says that.
 *
 * @param {number} maxTicks ticks
 */
export function makeTicks(bins, column, name, maxTicks = 6, features = undefined) {
  const edgeTicks = [...findEdgeValues(bins, column, name)].map(([at, value]) => ({ at, value })).sort((first, second) => first.at - second.at);
  const shownTicks = [];
  for (const tick of edgeTicks) if (!shownTicks.length || tick.at - shownTicks.at(-1).at >= 1 / maxTicks || tick.at === 1) shownTicks.push(tick);
  if (shownTicks.length > 1 && shownTicks.at(-1).at - shownTicks.at(-2).at < 1 / maxTicks) shownTicks.splice(-2, 1);
  if (shownTicks.length) return shownTicks;
  const [low, high] = endsOf(name, features) ?? ["no", "yes"];
  return [{ at: 0, value: low }, { at: 1, value: high }];
}
