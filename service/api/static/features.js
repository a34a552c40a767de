// Features whose means creep within a sub-task, which no boundary tells of.

import { byId, make, say, show } from "./element.js";
import { decimal, isKnown, plural } from "./format.js";

/** @param {any} drift GET /drift @param {any} model GET /model */
export function showFeatures(drift, model) {
  const rows = drift?.feature_drift?.features ?? [];
  const compared = rows.some((/** @type {any} */ one) => isKnown(one.change));
  // Single pixels say nothing to people, and there is nothing to tell of very wide samples.
  byId("features-section").hidden = Boolean(model?.image_shape) || (drift !== null && !drift?.feature_drift);
  byId("features-none").hidden = compared;
  const coarse = model?.coarse_features ?? [];
  byId("features-coarse").hidden = coarse.length === 0;
  say(byId("features-coarse"), coarse.length ? coarseInWords(coarse) : "");
  show(byId("features"), compared && rows, () => (compared ? rows : []).map((/** @type {any} */ one) => make("li", {},
    make("b", { title: one.name ? `${one.name} (feature ${one.feature})` : `feature ${one.feature}` }, one.name ?? `${one.feature}`),
    course(one),
    make("span", { class: "figure" }, decimal(one.mean)),
    make("small", {}, inWords(one)))));
}

/** Features that lie too far from zero for float32. @param {any[]} rows @returns {string} */
function coarseInWords(rows) {
  const names = rows.slice(0, 3).map((one) => one.name ?? `feature ${one.feature}`).join(", ");
  return `float32 is too coarse for ${rows.length > 3 ? `${names} and ${plural(rows.length - 3, "other")}` : names}: what varies there is lost. Subtract an offset before sending, then reset.`;
}

/** @param {any} one @returns {string} */
function inWords(one) {
  const moved = `before: ${decimal(one.reference_mean)}; moved by ${decimal(one.change, 2)} deviations`;
  return one.drifts ? `drifts; ${moved}` : moved;
}

/** The means of a feature since the sub-task began, as a line. @param {any} one */
function course(one) {
  const [low, high] = [Math.min(...one.course), Math.max(...one.course)];
  const step = 100 / Math.max(1, one.course.length - 1);
  const level = (/** @type {number} */ mean) => (high > low ? 92 - (84 * (mean - low)) / (high - low) : 50).toFixed(1);
  const path = `M${one.course.map((/** @type {number} */ mean, /** @type {number} */ place) => `${(place * step).toFixed(1)} ${level(mean)}`).join("L")}`;
  return make("svg", { class: "profile", "data-level": one.drifts ? "near" : "plain", viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": `Course of ${one.name ?? `feature ${one.feature}`}` },
    make("path", { d: path, class: "line" }));
}
