// How well every past sub-task is still held, by samples that the model drew when it ended.

import { byId, enumerated, make, show, showEach } from "./element.js";
import { UNKNOWN, byLabel, decimal, isKnown, percent, plural } from "./format.js";

const MOST_NAMED = 6; // all are told below

/** @param {any} model GET /model */
export function showRetention(model) {
  const held = (model?.held ?? []).map((/** @type {any} */ one) => ({ ...one,
    classes: one.classes.toSorted((/** @type {any} */ a, /** @type {any} */ b) => byLabel(a.label, b.label)) }));
  byId("retention-none").hidden = held.length > 0;
  byId("retention").hidden = held.length === 0;
  showEach(byId("retention-rows"), held.toReversed().flatMap((/** @type {any} */ one) => [
    [one, () => row(one)],
    ...(one.classes.length > 1 ? [[[one.sub_task, one.classes.length], () => more(one)]] : []),
  ]));
  for (const { sub_task: number, classes } of held) {
    if (classes.length > 1) show(byId(`held-${number}`), classes, () => classes.map(ofClass));
  }
}

/** @param {any} one */
function row(one) {
  const names = enumerated(one.classes.map((/** @type {any} */ each) => each.label), MOST_NAMED);
  return make("tr", {},
    make("th", { scope: "row" }, `Sub-task ${one.sub_task}`, " ", make("small", {}, one.classes.length ? names : "no labels")),
    make("td", { "data-head": "Accuracy" }, kept(one.accuracy_then, one.accuracy_now)),
    make("td", { "data-head": "Right class" }, kept(one.probability_then, one.probability_now)),
    make("td", { "data-head": "Log-likelihood" }, nats(one)),
    make("td", { class: "faint", "data-head": "Asked of" }, `version ${one.model_version}`));
}

/** The classes of a sub-task, where somebody wants to see them: open or not, it stays. @param {any} one */
function more(one) {
  return make("tr", { class: "inner" }, make("td", { colspan: 5 },
    make("details", {}, make("summary", {}, `Each of the ${plural(one.classes.length, "class", "classes")} of sub-task ${one.sub_task}`),
      make("ul", { class: "classes", id: `held-${one.sub_task}` }))));
}

/** @param {any} one */
function ofClass(one) {
  return make("li", {}, make("b", { title: one.label }, one.label), kept(one.accuracy_then, one.accuracy_now));
}

/** What was right, and what still is. @param {number | null} then @param {number | null} now */
function kept(then, now) {
  if (!isKnown(then) || !isKnown(now)) return make("span", { class: "faint" }, UNKNOWN);
  const level = now < then - 0.1 ? "alarm" : now < then - 0.02 ? "near" : "good";
  return make("span", { class: "kept" },
    make("span", { class: "meter", "data-level": level, share: now }),
    make("span", { class: "figure" }, `${percent(now)}${Math.abs(now - then) < 5e-4 ? "" : ` from ${percent(then)}`}`));
}

/** @param {any} one */
function nats({ log_likelihood_then: then, log_likelihood_now: now }) {
  if (!isKnown(now)) {
    return make("span", { class: "faint", title: "Components that drew those samples have changed since." }, UNKNOWN);
  }
  const change = now - then;
  return make("span", { class: "figure" }, Math.abs(change) < 0.05 ? "as it was" : `${change > 0 ? "+" : "−"}${decimal(Math.abs(change), 2)}`);
}
