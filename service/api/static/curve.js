// The history of batches in a bounded number of points: read from GET /drift/curve, continued by
// events. Where there are too many points, two and two become one, as the service does it.

/**
 * @typedef {object} Point
 * @property {number} start_time
 * @property {number} time
 * @property {number} batches
 * @property {number} samples
 * @property {number} labelled
 * @property {number} set_aside
 * @property {number | null} inlier_rate
 * @property {number | null} inlier_rate_low
 * @property {number | null} inlier_rate_mean
 * @property {number | null} log_likelihood
 * @property {number | null} accuracy
 * @property {number | null} accuracy_mean
 * @property {number | null} estimated_accuracy
 * @property {number | null} ratio
 * @property {Record<string, number | null>} ratios
 */

export const MOST_POINTS = 600;

export class Curve {
  constructor() {
    /** @type {Point[]} */
    this.points = [];
    this.perPoint = 1;
  }

  /**
   * What the service answered.
   * @param {{batches_per_point: number, points: Record<string, any>}} answer
   */
  static of(answer) {
    const made = new Curve();
    const { ratios, ...columns } = answer.points;
    made.perPoint = answer.batches_per_point;
    made.points = columns.time.map((/** @type {number} */ _, /** @type {number} */ row) => {
      const point = Object.fromEntries(Object.entries(columns).map(([name, list]) => [name, list[row]]));
      point.ratios = Object.fromEntries(Object.entries(ratios).map(([name, list]) => [name, list[row]]));
      return point;
    });
    return made;
  }

  /**
   * One more batch, as its event has it.
   * @param {any} event
   */
  add(event) {
    const last = this.points.at(-1);
    const point = pointOf(event);
    if (last && last.batches < this.perPoint) return join(last, point);
    if (this.points.length >= MOST_POINTS) this.halve();
    const now = this.points.at(-1);
    if (now && now.batches < this.perPoint) return join(now, point);
    this.points.push(point);
  }

  halve() {
    const kept = [];
    for (let place = 0; place < this.points.length; place += 2) {
      if (place + 1 < this.points.length) join(this.points[place], this.points[place + 1]);
      kept.push(this.points[place]);
    }
    this.points = kept;
    this.perPoint *= 2;
  }

  /** Leave out what is older. @param {number} since Unix seconds */
  forget(since) {
    while (this.points.length && this.points[0].time < since) this.points.shift();
  }
}

/** @param {any} event @returns {Point} */
function pointOf(event) {
  /** @type {Record<string, number | null>} */
  const ratios = {};
  for (const [name, statistic] of Object.entries(event.statistics)) {
    const threshold = event.thresholds[name];
    if (threshold) ratios[name] = statistic / threshold;
  }
  return {
    start_time: event.time, time: event.time, batches: 1, samples: event.samples,
    labelled: event.prequential_accuracy === null ? 0 : event.labelled,
    set_aside: Number(event.kind === "batch_set_aside"),
    inlier_rate: event.inlier_rate, inlier_rate_low: event.inlier_rate,
    inlier_rate_mean: event.inlier_rate_mean, log_likelihood: event.log_likelihood_mean,
    accuracy: event.prequential_accuracy, accuracy_mean: event.prequential_accuracy_mean,
    estimated_accuracy: event.estimated_accuracy ?? null,
    ratio: event.threshold ? event.statistic / event.threshold : null, ratios,
  };
}

/** @param {Point} one @param {Point} later */
function join(one, later) {
  one.inlier_rate = mean(one.inlier_rate, one.samples, later.inlier_rate, later.samples);
  one.log_likelihood = mean(one.log_likelihood, one.samples, later.log_likelihood, later.samples);
  one.estimated_accuracy = mean(one.estimated_accuracy, one.samples, later.estimated_accuracy, later.samples);
  one.accuracy = mean(one.accuracy, one.labelled, later.accuracy, later.labelled);
  one.inlier_rate_low = least(one.inlier_rate_low, later.inlier_rate_low);
  one.inlier_rate_mean = later.inlier_rate_mean ?? one.inlier_rate_mean;
  one.accuracy_mean = later.accuracy_mean ?? one.accuracy_mean;
  one.ratio = most(one.ratio, later.ratio);
  for (const name of Object.keys(later.ratios)) {
    one.ratios[name] = most(one.ratios[name] ?? null, later.ratios[name]);
  }
  one.time = later.time;
  one.batches += later.batches;
  one.samples += later.samples;
  one.labelled += later.labelled;
  one.set_aside += later.set_aside;
}

/** @typedef {number | null} Known */

/** @param {Known} a @param {number} n @param {Known} b @param {number} m */
function mean(a, n, b, m) {
  if (a === null || n === 0) return b;
  if (b === null || m === 0) return a;
  return (a * n + b * m) / (n + m);
}

/** @param {Known} a @param {Known} b */
function least(a, b) {
  return a === null ? b : b === null ? a : Math.min(a, b);
}

/** @param {Known} a @param {Known} b */
function most(a, b) {
  return a === null ? b : b === null ? a : Math.max(a, b);
}
