// Intervals of paired differences, as kvbench/metrics/bootstrap.py makes them and explains.

const DRAWS = 2000;
const UNSEEN = 2 / 3;

/**
 * The 95 % interval of the mean over tasks of there - here; tasks are lists of contexts, which are lists of samples.
 * The samples of a context are drawn together. [null, null] where a task has fewer than two contexts, or where values
 * without bounds do not vary.
 * bounded  scores lie in 0 to 1, so that differences lie in -1 to 1
 */
function pairedInterval(tasks, bounded = true) {
  if (tasks.some((contexts) => contexts.length < 2)) return [null, null];
  const scores = tasks.flat(2).flatMap(({ here, there }) => [here, there]);
  const inside = bounded && scores.every((score) => score >= 0 && score <= 1);
  const units = tasks.map((contexts) => ({
    sums: contexts.map((samples) => samples.reduce((total, { here, there }) => total + there - here, 0)),
    counts: contexts.map(({ length }) => length),
  }));
  if (inside) return [-1, 1].map((bound) => quantile(boundedMeans(units, bound), bound));
  const spread = ({ sums, counts }) => sums.map((sum, i) => sum / counts[i]);
  if (units.every((task) => Math.max(...spread(task)) - Math.min(...spread(task)) < 1e-9)) return [null, null];
  const means = unboundedMeans(units);
  return [-1, 1].map((side) => quantile(means, side));
}

/** The quantile of 2.5 % on the side -1, of 97.5 % on the side 1. */
function quantile(means, side) {
  return Float64Array.from(means).sort()[Math.round((side < 0 ? 0.025 : 0.975) * (DRAWS - 1))];
}

/** DRAWS means over tasks of weighted units, with unseen ones at `bound`. */
function boundedMeans(tasks, bound) {
  const { weights, unseen } = unitWeights(tasks.map(({ counts }) => counts.length));
  return Array.from({ length: DRAWS }, (_, draw) =>
    mean(
      tasks.map(({ sums, counts }, task) => {
        const more = unseen[task][draw] * mean(counts);
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

let lastWeights = { key: "" }; // most pairs of settings are over the same units

/** For tasks of so many units: DRAWS weights of each unit, and of what was not seen. */
function unitWeights(units) {
  const key = units.join();
  if (key !== lastWeights.key) {
    const random = randomNumbers(1);
    const weights = units.map((n) =>
      Float64Array.from({ length: DRAWS * n }, () => gamma(random, Math.max(n - 2, 1) / n)),
    );
    const fewest = Math.min(...units);
    const unseen = units.map((n) =>
      Float64Array.from({ length: DRAWS }, () => (gamma(random, UNSEEN / units.length) * n) / fewest),
    );
    lastWeights = { key, weights, unseen };
  }
  return lastWeights;
}

/** DRAWS means over tasks of weighted units whose values have no bounds. */
function unboundedMeans(tasks) {
  const random = randomNumbers(1);
  const drawn = tasks.map(({ sums, counts }) => {
    const units = counts.length;
    const means = Array.from({ length: DRAWS }, () => {
      let [total, size] = [0, 0];
      for (let i = 0; i < units; i++) {
        const weight = exponential(random);
        total += weight * sums[i];
        size += weight * counts[i];
      }
      return total / size;
    });
    const centre = mean(means);
    const stretch = Math.sqrt((units + 1) / (units - 1));
    return means.map((value) => {
      const student = Math.sqrt((units - 1) / (2 * gamma(random, (units - 1) / 2))); // of chi square
      return centre + (value - centre) * stretch * student;
    });
  });
  return Array.from({ length: DRAWS }, (_, i) => mean(drawn.map((means) => means[i])));
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
