// Intervals of paired differences, as kvbench/metrics/bootstrap.py makes them and explains.

const DRAWS = 2000;

/**
 * The 95 % interval of the mean over tasks of there - here; tasks are lists of contexts, which are lists of samples.
 * The samples of a context are drawn together. [null, null] where a task has fewer than two contexts.
 * bounded  scores lie in 0 to 1, so that differences lie in -1 to 1
 */
function pairedInterval(tasks, bounded = true) {
  if (tasks.some((contexts) => contexts.length < 2)) return [null, null];
  const scores = tasks.flat(2).flatMap(({ here, there }) => [here, there]);
  const inside = bounded && scores.every((score) => score >= 0 && score <= 1);
  const random = randomNumbers(1);
  const drawn = tasks.map((contexts) => drawnMeans(contexts, inside, random));
  const means = Float64Array.from({ length: DRAWS }, (_, i) => mean(drawn.map((of) => of[i]))).sort();
  const quantile = (share) => means[Math.round(share * (DRAWS - 1))];
  const [low, high] = [quantile(0.025), quantile(0.975)];
  return inside ? [Math.max(low, -1), Math.min(high, 1)] : [low, high];
}

/** DRAWS means of there - here over one task's contexts. */
function drawnMeans(contexts, inside, random) {
  const sums = contexts.map((samples) => samples.reduce((total, { here, there }) => total + there - here, 0));
  const counts = contexts.map(({ length }) => length);
  const units = contexts.length;
  const each = sums.map((sum, i) => sum / counts[i]);
  const equal = Math.max(...each) - Math.min(...each) < 1e-9;
  const atBounds = contexts.flat().map(({ here, there }) => Number([0, 1].includes(here) && [0, 1].includes(there)));
  const bounded = inside ? (equal ? 1 : mean(atBounds)) : 0;
  const average = () => {
    let [total, size] = [0, 0];
    for (let i = 0; i < units; i++) {
      const weight = exponential(random);
      total += weight * sums[i];
      size += weight * counts[i];
    }
    for (const bound of bounded ? [-1, 1] : []) {
      const more = bounded * (normal(random) ** 2 / 2) * mean(counts); // a gamma of 1/2
      total += more * bound;
      size += more;
    }
    return total / size;
  };
  const means = Array.from({ length: DRAWS }, average);
  const centre = mean(means);
  const stretch = Math.sqrt((units + 1) / (units - 1));
  return means.map((one) => {
    const student = bounded < 1 ? ((units - 1) / chiSquare(units - 1, random)) ** ((1 - bounded) / 2) : 1;
    return centre + (one - centre) * stretch * student;
  });
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

/** A draw from the distribution of chi square: a sum of squares, or beyond 30 the approximation of Wilson and Hilferty. */
function chiSquare(degrees, random) {
  if (degrees > 30) return degrees * (1 - 2 / (9 * degrees) + normal(random) * Math.sqrt(2 / (9 * degrees))) ** 3;
  let sum = degrees % 2 ? normal(random) ** 2 : 0;
  for (let i = 0; i < Math.floor(degrees / 2); i++) sum += 2 * exponential(random);
  return sum;
}
