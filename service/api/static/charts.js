// Curves over time, with the boundaries as lines through all of them. Drawn by uPlot.

import { byId } from "./element.js";
import { clock, decimal, percent } from "./format.js";

/** @typedef {import("./curve.js").Point} Point */
/** @typedef {{time: number, name: string}} Mark */
/** @typedef {{name: string, of: (point: Point) => number | null | undefined, colour: string, dash?: number[], width?: number, rule?: boolean}} Line a rule is there whatever is known */

/**
 * @typedef {object} Panel
 * @property {string} id of the element that it is drawn in
 * @property {(names: string[]) => Line[]} lines
 * @property {(value: number | null | undefined) => string} shown
 * @property {[number | null, number | null]} range null: as the values ask
 * @property {(last: Point | undefined) => string} summary for who cannot see it
 */

const HEIGHT = 190;

/** @type {Panel[]} */
const PANELS = [
  {
    id: "chart-inliers",
    lines: () => [
      { name: "inlier rate", of: (point) => point.inlier_rate, colour: "--blue", width: 2 },
      { name: "lowest batch", of: (point) => point.inlier_rate_low, colour: "--blue-soft" },
      { name: "usual", of: (point) => point.inlier_rate_mean, colour: "--ink-faint", dash: [4, 4] },
    ],
    shown: percent,
    range: [0, 1],
    summary: (last) => `Inlier rate over time; the newest is ${percent(last?.inlier_rate)}.`,
  },
  {
    id: "chart-statistic",
    lines: (shadows) => [
      { name: "deciding", of: (point) => point.ratio, colour: "--red", width: 2 },
      ...shadows.map((name, place) => ({
        name,
        of: (/** @type {Point} */ point) => point.ratios[name],
        colour: SHADOWS[place % SHADOWS.length],
        dash: [6, 3],
      })),
      { name: "threshold", of: (point) => (point.batches ? 1 : null), colour: "--ink-faint", dash: [2, 3], rule: true },
    ],
    shown: (value) => decimal(value, 2),
    range: [0, 2],
    summary: (last) => `Statistic over threshold; the newest is ${decimal(last?.ratio, 2)}, an alarm is at 1.`,
  },
  {
    id: "chart-likelihood",
    lines: () => [{ name: "log-likelihood", of: (point) => point.log_likelihood, colour: "--violet", width: 2 }],
    shown: decimal,
    range: [null, null],
    summary: (last) => `Log-likelihood over time; the newest is ${decimal(last?.log_likelihood)} nats.`,
  },
  {
    id: "chart-accuracy",
    lines: () => [
      { name: "accuracy", of: (point) => point.accuracy, colour: "--green", width: 2 },
      { name: "running mean", of: (point) => point.accuracy_mean, colour: "--ink-faint", dash: [4, 4] },
      { name: "expected without labels", of: (point) => point.estimated_accuracy, colour: "--violet", dash: [6, 3] },
    ],
    shown: percent,
    range: [0, 1],
    summary: (last) => `Prequential accuracy over time; the running mean is ${percent(last?.accuracy_mean)}, and ${percent(last?.estimated_accuracy)} are expected of the newest samples.`,
  },
];

const SHADOWS = ["--violet", "--teal", "--amber", "--blue"];

export class Charts {
  constructor() {
    /** @type {Mark[]} */
    this.marks = [];
    /** @type {Point[]} */
    this.points = [];
    /** @type {string[]} */
    this.shadows = [];
    /** @type {Map<string, any>} */
    this.plots = new Map();
    this.waiting = false;
    /** What was drawn last: a chart costs some milliseconds, and nothing new needs none. */
    this.key = "";
    // Paper is light, whatever the screen is.
    matchMedia("screen and (prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
    new ResizeObserver(() => this.resize()).observe(byId("charts"));
  }

  /**
   * Draw, at the next frame.
   * @param {Point[]} points
   * @param {Mark[]} marks
   * @param {string[]} shadows
   */
  update(points, marks, shadows) {
    const last = points.at(-1);
    const key = [points[0]?.start_time, last?.time, last?.batches, points.length, marks.length].join();
    const others = shadows.join() !== this.shadows.join();
    if (key === this.key && !others) return;
    Object.assign(this, { key, points, marks, shadows });
    if (others) this.rebuild();
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    const points = withGaps(this.points);
    const times = points.map((point) => point.time);
    for (const panel of PANELS) {
      const place = byId(panel.id);
      const lines = panel.lines(this.shadows);
      const told = lines.filter((line) => !line.rule);
      const known = this.points.some((point) => told.some((line) => (line.of(point) ?? null) !== null));
      place.classList.toggle("nothing", !known);
      place.setAttribute("aria-label", known ? panel.summary(this.points.at(-1)) : "Nothing to draw yet.");
      if (!known) continue;
      const data = [times, ...lines.map((line) => points.map((point) => line.of(point) ?? null))];
      const plot = this.plots.get(panel.id);
      if (plot) renew(plot, data);
      else this.plots.set(panel.id, this.plot(panel, lines, data, place));
      if (plot) tellNewest(plot);
    }
  }

  rebuild() {
    for (const plot of this.plots.values()) plot.destroy();
    this.plots.clear();
    if (this.points.length) this.draw();
  }

  /** Draw nothing, nor keep in sight what somebody looked closer at. */
  forget() {
    this.points = [];
    this.rebuild();
  }

  resize() {
    for (const [id, plot] of this.plots) {
      const width = byId(id).clientWidth;
      if (width && width !== plot.width) plot.setSize({ width, height: HEIGHT });
    }
  }

  /**
   * @param {Panel} panel
   * @param {Line[]} lines
   * @param {any[]} data
   * @param {HTMLElement} place
   */
  plot(panel, lines, data, place) {
    const faint = colour("--ink-faint");
    const axis = { stroke: faint, font: "11px system-ui", ticks: { show: false }, grid: { stroke: colour("--line"), width: 1 } };
    const [low, high] = panel.range;
    return new window.uPlot({
      width: place.clientWidth || 320,
      height: HEIGHT,
      padding: [16, 12, 0, 0],
      cursor: { sync: { key: "time" }, points: { size: 6 }, drag: { x: true, y: false } },
      scales: {
        x: { time: true },
        // A statistic may pass its threshold a hundredfold: what matters is where it passes 1.
        y: { range: (/** @type {any} */ _, /** @type {number} */ least, /** @type {number} */ most) => padded(low ?? least, high ?? most) },
      },
      axes: [
        { ...axis, grid: { show: false }, size: 30, space: 70, values: times },
        { ...axis, size: 52, space: 36, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map((tick) => (panel.shown === percent ? percent(tick, 0) : decimal(tick))) },
      ],
      series: [
        { label: "time", value: (/** @type {any} */ _, /** @type {number | null} */ value) => (value === null || value === undefined ? "–" : clock(value)) },
        ...lines.map((line) => ({
          label: line.name,
          stroke: colour(line.colour),
          width: line.width ?? 1.25,
          dash: line.dash,
          points: { show: false, size: 4, filter: alone },
          value: (/** @type {any} */ _, /** @type {number | null} */ value) => (value === null || value === undefined ? "–" : panel.shown(value)),
        })),
      ],
      hooks: { ready: [tellNewest], drawClear: [(/** @type {any} */ plot) => this.shade(plot)], draw: [(/** @type {any} */ plot) => this.rule(plot)] },
    }, data, place);
  }

  /** Batches that are set aside, as bands. @param {any} plot */
  shade(plot) {
    const { ctx: context, bbox } = plot;
    context.save();
    context.fillStyle = colour("--amber-soft");
    for (const [place, point] of this.points.entries()) {
      if (!point.set_aside) continue;
      const next = this.points[place + 1];
      const left = Math.round(plot.valToPos(point.start_time, "x", true));
      const right = Math.max(left + 2, Math.round(plot.valToPos(next?.set_aside ? next.start_time : point.time, "x", true)));
      if (right > bbox.left && left < bbox.left + bbox.width) context.fillRect(left, bbox.top, right - left, bbox.height);
    }
    context.restore();
  }

  /** Boundaries, as lines with their numbers. @param {any} plot */
  rule(plot) {
    const { ctx: context, bbox } = plot;
    context.save();
    context.strokeStyle = context.fillStyle = colour("--red");
    context.lineWidth = devicePixelRatio;
    context.setLineDash([]);
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    context.font = `${11 * devicePixelRatio}px system-ui`;
    let free = -Infinity;
    for (const mark of this.marks) {
      const x = Math.round(plot.valToPos(mark.time, "x", true)) + 0.5;
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      context.globalAlpha = 0.6;
      context.beginPath();
      context.moveTo(x, bbox.top);
      context.lineTo(x, bbox.top + bbox.height);
      context.stroke();
      if (x < free) continue;
      context.globalAlpha = 1;
      context.fillText(mark.name, x, bbox.top - 4 * devicePixelRatio);
      free = x + context.measureText(mark.name).width + 8 * devicePixelRatio;
    }
    context.restore();
  }
}

/** Show newer points; what somebody looks closer at stays in sight. @param {any} plot @param {any[]} data */
function renew(plot, data) {
  const { min, max } = plot.scales.x;
  const closer = (min > plot.data[0][0] || max < plot.data[0].at(-1)) && max > data[0][0];
  plot.batch(() => {
    plot.setData(data);
    if (closer) plot.setScale("x", { min, max });
  });
}

/** While nobody points at a time, the legend tells the newest. @param {any} plot */
function tellNewest(plot) {
  if (!(plot.cursor.left >= 0)) plot.setLegend({ idx: plot.data[0].length - 1 });
}

/**
 * The points, with an empty one where nothing came for long: a line across it would be made up.
 * @param {Point[]} points
 */
function withGaps(points) {
  const steps = points.slice(1).map((point, place) => point.start_time - points[place].time).sort((a, b) => a - b);
  const long = Math.max(GAP_S, 20 * (steps[steps.length >> 1] ?? 0));
  return points.flatMap((point, place) => {
    const last = points[place - 1];
    return last && point.start_time - last.time > long ? [{ ...NOTHING, time: (last.time + point.start_time) / 2 }, point] : [point];
  });
}

const GAP_S = 1;

/** @type {Point} */
const NOTHING = {
  start_time: 0, time: 0, batches: 0, samples: 0, labelled: 0, set_aside: 0, inlier_rate: null, inlier_rate_low: null,
  inlier_rate_mean: null, log_likelihood: null, accuracy: null, accuracy_mean: null, estimated_accuracy: null, ratio: null, ratios: {},
};

/**
 * Points that no line leads to: without a dot nobody would see them.
 * @param {any} plot
 * @param {number} series
 */
function alone(plot, series) {
  const values = plot.data[series];
  const known = (/** @type {number} */ at) => (values[at] ?? null) !== null;
  return values.map((/** @type {any} */ _, /** @type {number} */ at) => at).filter((/** @type {number} */ at) => known(at) && !known(at - 1) && !known(at + 1));
}

/** @param {number} low @param {number} high @returns {[number, number]} */
function padded(low, high) {
  if (low === null || high === null) return [0, 1];
  const room = 0.05 * (high - low || Math.abs(high) || 1);
  return [low === 0 ? 0 : low - room, high + room];
}

/**
 * Ticks of time in one line: seconds where they are close, the day where they are days apart.
 * @param {any} _
 * @param {number[]} ticks Unix seconds
 * @param {number} __
 * @param {number} ___
 * @param {number} step between two ticks, seconds
 */
function times(_, ticks, __, ___, step) {
  const form = new Intl.DateTimeFormat(undefined, step >= 86_400
    ? { month: "short", day: "numeric" }
    : { hour: "2-digit", minute: "2-digit", second: step < 60 ? "2-digit" : undefined, fractionalSecondDigits: step < 1 ? 1 : undefined, hourCycle: "h23" });
  return ticks.map((tick) => form.format(1000 * tick));
}

/** @param {string} name of a custom property */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

