// What is usual of each feature of a table, by samples that the model draws: so sensors with units
// of their own are drawn beside each other, and what stands out is named.

import { decimal, withMinus } from "./format.js";
import { drawn, get } from "./service.js";

const DRAWN = 400;
const MOST_NUMBERS = 400_000;
const MOST_FEATURES = 4096;
const REFRESH_MS = 60_000;
const AGAIN_MS = 15_000; // after a question that failed
const COARSE = 1e-5; // of a mean: what varies less is constant, but for rounding
const STANDS_OUT = 1; // deviations
const SMALL = 1e-6; // what is smaller, or LARGE, is told by its power of ten
const LARGE = 1e15;
const MOST_AWAY = 99; // deviations that are told

/** @typedef {{mean: number[], deviation: number[], names: string[] | null}} Usual */

/** @type {{usual: Usual | null, version: number, at: number}} */
let kept = { usual: null, version: 0, at: 0 };
/** @type {Promise<void> | null} */
let asked = null;
let doubts = 0;
let failed = -Infinity;

/**
 * Ask for it where it is not known, or was asked of a version that answers no more.
 * @param {any} model GET /model
 * @param {() => void} [then] called when it is known anew
 */
export function keepUsual(model, then = () => {}) {
  const width = model?.features ?? 0;
  if (model?.image_shape || !model?.model_version || !width || width > MOST_FEATURES) return;
  const old = kept.version !== model.model_version && (!kept.version || performance.now() - kept.at > REFRESH_MS);
  if (!old || performance.now() - failed < AGAIN_MS) return;
  asked ??= ask(model.model_version, width).finally(() => { asked = null; }).then(then, () => { failed = performance.now(); });
  return asked;
}

/** @param {number} version @param {number} width */
async function ask(version, width) {
  const before = doubts;
  const [samples, { feature_names: names }] = await Promise.all([
    drawn(null, Math.max(2, Math.min(DRAWN, Math.floor(MOST_NUMBERS / width))), true), get("model/feature-names")]);
  const mean = samples[0].map((_, place) => samples.reduce((sum, one) => sum + one[place], 0) / samples.length);
  const deviation = mean.map((middle, place) => Math.sqrt(samples.reduce((sum, one) => sum + (one[place] - middle) ** 2, 0) / samples.length));
  if (before === doubts) kept = { usual: { mean, deviation, names }, version, at: performance.now() };
}

/** Ask again, soon: another model may answer. */
export function doubtUsual() {
  doubts += 1;
  failed = -Infinity;
  kept = { ...kept, version: NaN, at: -Infinity };
}

/** Of another model. */
export function forgetUsual() {
  doubtUsual();
  kept = { usual: null, version: 0, at: 0 };
}

/**
 * In deviations from usual, 0 of what is constant; null where nothing is known.
 * @param {number[]} features
 * @returns {number[] | null}
 */
export function away(features) {
  const usual = kept.usual;
  if (usual?.mean.length !== features.length) return null;
  return features.map((value, place) => {
    const [mean, deviation] = [usual.mean[place], usual.deviation[place]];
    if (Math.abs(value - mean) <= COARSE * Math.abs(mean)) return 0;
    return (value - mean) / Math.max(deviation, COARSE * Math.abs(mean), Number.MIN_VALUE);
  });
}

/** @typedef {{name: string, value: string, usual: string, away: number}} StandsOut */

/**
 * The features of a sample that are most unusual, the most unusual first.
 * @param {number[]} features
 * @param {number} most
 * @returns {StandsOut[]}
 */
export function standOut(features, most) {
  const { usual } = kept;
  const far = away(features);
  if (!usual || !far) return [];
  const places = far.map((_, place) => place).filter((place) => Math.abs(far[place]) >= STANDS_OUT)
    .sort((a, b) => Math.abs(far[b]) - Math.abs(far[a]));
  return places.slice(0, most).map((place) => ({
    name: usual.names?.[place] ?? `feature ${place}`,
    value: amount(features[place], usual.deviation[place]),
    usual: amount(usual.mean[place], usual.deviation[place]),
    away: far[place],
  }));
}

/**
 * In short: "vibration +6.2, p_in −2.1".
 * @param {number[]} features
 * @param {number} [most]
 */
export function inShort(features, most = 2) {
  return standOut(features, most).map((one) => {
    const size = Math.abs(one.away);
    return `${one.name} ${one.away < 0 ? "−" : "+"}${size > MOST_AWAY ? `${MOST_AWAY} or more` : size.toFixed(1)}`;
  }).join(", ");
}

/** What people call the features; null where they have no names, or none that is known. */
export function featureNames() {
  return kept.usual?.names ?? null;
}

/** What a picture depends on, beside the sample. */
export function usualKey() {
  return kept.usual && [kept.version, kept.usual.names?.length];
}

/**
 * A value with as many digits as its deviation deserves.
 * @param {number} value
 * @param {number | null} deviation
 */
export function amount(value, deviation) {
  const size = Math.max(Math.abs(value), deviation ?? 0);
  if (size && (size < SMALL || size >= LARGE)) return decimal(value);
  const fine = deviation ? Math.ceil(-Math.log10(deviation)) : 3;
  return withMinus(value.toLocaleString("en", { maximumFractionDigits: Math.min(9, Math.max(0, fine)), useGrouping: Math.abs(value) >= 1e4 }));
}
