// Intervals of paired differences, as kvbench/metrics/bootstrap.py and unbounded.py make them and explain.

const DRAWS = 2000;
const UNSEEN = 2 / 3;

/**
 * The 95 % interval of the mean over tasks of there - here; tasks are lists of contexts, which are lists of samples.
 * The samples of a context are drawn together, also those of several tasks. [null, null] where a task has fewer than
 * two contexts, or where values without bounds do not vary.
 * bounded  scores lie in 0 to 1, so that differences lie in -1 to 1
 */
function pairedInterval(tasks, bounded = true) {
  if (tasks.some((contexts) => contexts.length < 2)) return [null, null];
  const scores = tasks.flat(2).flatMap(({ here, there }) => [here, there]);
  const inside = bounded && scores.every((score) => score >= 0 && score <= 1);
  const numbers = new Map(); // of contexts; samples without a context are alone
  const numberOf = (context = Symbol()) => {
    if (!numbers.has(context)) numbers.set(context, numbers.size);
    return numbers.get(context);
  };
  const units = tasks.map((contexts) => ({
    numbers: contexts.map(([{ context }]) => numberOf(context)),
    sums: contexts.map((samples) => samples.reduce((total, { here, there }) => total + there - here, 0)),
    counts: contexts.map(({ length }) => length),
  }));
  if (inside) return [-1, 1].map((bound) => quantile(boundedMeans(units, bound), bound));
  const spread = ({ sums, counts }) => sums.map((sum, i) => sum / counts[i]);
  if (units.every((task) => Math.max(...spread(task)) - Math.min(...spread(task)) < 1e-9)) return [null, null];
  return unboundedEnds(units);
}

/** The quantile of 2.5 % on the side -1, of 97.5 % on the side 1. */
function quantile(means, side) {
  return Float64Array.from(means).sort()[Math.round((side < 0 ? 0.025 : 0.975) * (DRAWS - 1))];
}

/** DRAWS means over tasks of weighted units, with unseen ones at `bound`. */
function boundedMeans(tasks, bound) {
  const { weights, unseen } = unitWeights(tasks.map(({ numbers }) => numbers), tasks.map(effective));
  const usual = tasks.map(({ counts }) => squares(counts) / sum(counts)); // sizes of the units in which samples lie
  return Array.from({ length: DRAWS }, (_, draw) =>
    mean(
      tasks.map(({ sums, counts }, task) => {
        const more = unseen[task][draw] * usual[task];
        const start = draw * counts.length;
        let [total, size] = [more * bound, more];
        for (let i = 0; i < counts.length; i++) {
          total += weights[task][start + i] * sums[i];
          size += weights[task][start + i] * counts[i];
        }
        return total / size;
      }),
    ),
  );
}

/** The number of equally large units that tell as much as a task's, and at least two. */
function effective({ counts }) {
  return Math.max(sum(counts) ** 2 / squares(counts), 2);
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

function squares(values) {
  return sum(values.map((value) => value ** 2));
}

let lastWeights = { key: "" }; // most pairs of settings are over the same units

/** For tasks of units with these numbers, of these effective sizes: DRAWS weights of each unit, and of what was not seen. */
function unitWeights(members, sizes) {
  const key = [...members, sizes].join(";");
  if (key !== lastWeights.key) {
    const random = randomNumbers(1);
    const shapes = sizes.map((n) => Math.max(n - 2, 1) / n);
    const smallest = new Map(); // the shape of a unit: that of the smallest of its tasks
    members.forEach((units, task) => {
      for (const unit of units) smallest.set(unit, Math.min(shapes[task], smallest.get(unit) ?? shapes[task]));
    });
    const drawn = new Map();
    for (const [unit, shape] of smallest) drawn.set(unit, draws(() => gamma(random, shape)));
    const weights = members.map((units, task) => {
      const all = new Float64Array(DRAWS * units.length);
      units.forEach((unit, i) => {
        const scale = shapes[task] / smallest.get(unit);
        drawn.get(unit).forEach((weight, draw) => (all[draw * units.length + i] = weight * scale));
      });
      return all;
    });
    const groups = groupsOf(members);
    const number = new Set(groups).size;
    const ofGroup = new Map([...new Set(groups)].map((group) => [group, draws(() => gamma(random, UNSEEN / number))]));
    const unseen = sizes.map((n, task) => ofGroup.get(groups[task]).map((weight) => (weight * n) / Math.min(...sizes)));
    lastWeights = { key, weights, unseen };
  }
  return lastWeights;
}

function draws(draw) {
  return Float64Array.from({ length: DRAWS }, draw);
}

/** For each task the first one with which it shares units, directly or through others. */
function groupsOf(members) {
  let groups = members.map((_, task) => task);
  const first = new Map();
  members.forEach((units, task) => {
    for (const unit of units) {
      if (!first.has(unit)) first.set(unit, task);
      const [low, high] = [groups[first.get(unit)], groups[task]].sort((a, b) => a - b);
      if (low < high) groups = groups.map((group) => (group === high ? low : group));
    }
  });
  return groups;
}

/** The ends for the mean over tasks of values without bounds: Student's, moved by the mean's skewness. */
function unboundedEnds(tasks) {
  const groups = groupsOf(tasks.map(({ numbers }) => numbers));
  const ofGroup = new Map(groups.map((group) => [group, { fewest: Infinity, deviations: new Map() }]));
  const means = tasks.map(({ numbers, sums, counts }, task) => {
    const group = ofGroup.get(groups[task]);
    const [size, average] = [sum(counts), sum(sums) / sum(counts)];
    group.fewest = Math.min(group.fewest, effective(tasks[task]));
    numbers.forEach((unit, i) => {
      const added = (sums[i] - average * counts[i]) / size / tasks.length; // to the mean over tasks
      group.deviations.set(unit, (group.deviations.get(unit) ?? 0) + added);
    });
    return average;
  });
  let [variance, third, uncertainty] = [0, 0, 0];
  for (const { fewest: n, deviations } of ofGroup.values()) {
    const values = [...deviations.values()];
    const part = (squares(values) * n) / (n - 1);
    variance += part;
    uncertainty += part ** 2 / (n - 1);
    third += sum(values.map((value) => value ** 3)) * (n >= 3 ? n ** 2 / ((n - 1) * (n - 2)) : 1);
  }
  const [centre, error] = [mean(means), Math.sqrt(variance)];
  if (!error) return [centre, centre];
  const most = student(variance ** 2 / uncertainty); // Welch and Satterthwaite's degrees of freedom
  return [most, -most].map((quantile) => centre - error * untransformed(quantile, third / error ** 3));
}

/** The studentised mean of this skewness that Hall's transformation turns into `quantile`. */
function untransformed(quantile, skewness) {
  const sixth = skewness / 6;
  if (Math.abs(sixth) < 1e-9) return quantile;
  return (Math.cbrt(1 + 6 * sixth * (quantile - sixth)) - 1) / (2 * sixth);
}

/** What Student's distribution exceeds in 2.5 % of cases: the tangent of an angle, of known density, times a factor. */
function student(freedom) {
  const steps = 20000;
  const heights = Array.from({ length: steps }, (_, i) => Math.cos((((i + 0.5) / steps) * Math.PI) / 2) ** (freedom - 1));
  let [left, i] = [0.05 * sum(heights), steps]; // of the upper half
  while (left > heights[i - 1]) left -= heights[--i];
  return Math.sqrt(freedom) * Math.tan((((i - left / heights[i - 1]) / steps) * Math.PI) / 2);
}

/** Numbers in (0, 1), the same ones for the same seed: a multiplicative generator modulo 2^31 - 1 (Lehmer). */
function randomNumbers(seed) {
  let state = seed;
  return () => {
    state = (state * 48271) % 2147483647;
    return state / 2147483647;
  };
}

function exponential(random) {
  return -Math.log(random());
}

function normal(random) {
  return Math.sqrt(2 * exponential(random)) * Math.cos(2 * Math.PI * random());
}

/** A draw from the gamma distribution (Marsaglia and Tsang 2000). */
function gamma(random, shape) {
  if (shape < 1) return gamma(random, shape + 1) * random() ** (1 / shape);
  const large = shape - 1 / 3;
  for (;;) {
    const x = normal(random);
    const cube = (1 + x / Math.sqrt(9 * large)) ** 3;
    if (cube > 0 && Math.log(random()) < x ** 2 / 2 + large * (1 - cube + Math.log(cube))) return large * cube;
  }
}
