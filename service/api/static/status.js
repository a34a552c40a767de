// What is going on at the moment: the phase in words, and the numbers that go with it.

import { byId, say, show, make } from "./element.js";
import { UNKNOWN, clock, count, decimal, isKnown, lasting, percent, plural } from "./format.js";
import { options } from "./models.js";

const RECENT_S = 15;
const SILENT_MS = 10_000;
const AWAY_MS = 3000; // one question that fails is no news yet
const FORBIDDEN = 403;

const RESTORED = "no batch since the rollback or upload";

/** Why the detector may not speak, where it is not for want of samples alone. */
const UNARMED = {
  annealing: "The model has yet to converge. ",
  dependence: "Samples depend on each other, so that the detector needs more of them. ",
  cooldown: "It rests after a boundary (GMR_COOLDOWN). ",
};

/**
 * @typedef {object} Now
 * @property {any} drift GET /drift; null while no trainer has reported
 * @property {any} model GET /model; null while it is not known
 * @property {number | null} rate samples per second
 * @property {number | null} samples of the current sub-task; null while it is not known
 * @property {any} boundary the newest of the model's past; null without one
 * @property {{time: number, at: number, asked: number, tried: number}} report the trainer's last sign of life, when the page first saw it, when it was last told, and when it last asked
 * @property {{at: number, time: number}} reached when the service answered last
 * @property {{type: string, message: string, status: number} | null} problem why the last question was not answered; null where all is well
 */

/** @param {Now} now */
export function showStatus(now) {
  const { drift, model } = now;
  const [phase, headline, sentence] = inWords(now);
  byId("status").dataset.phase = phase;
  say(byId("phase"), headline);
  say(byId("phase-says"), sentence);
  byId("steps").querySelectorAll("li").forEach((/** @type {HTMLElement} */ step) => {
    if (step.dataset.step === phase) step.setAttribute("aria-current", "step");
    else step.removeAttribute("aria-current");
  });
  const usual = drift?.inlier_rate_mean;
  const unscored = !isKnown(drift?.log_likelihood_mean);
  const restored = unscored && Boolean(model?.restored_entry_id);
  tile("inliers", percent(drift?.inlier_rate),
    isKnown(usual) ? `usual: ${percent(usual)}` : restored ? RESTORED : "no reference yet");
  tile("accuracy", percent(drift?.prequential_accuracy_mean),
    isKnown(drift?.estimated_accuracy)
      ? `expected now: ${percent(drift.estimated_accuracy)} (${percent(drift.estimated_accuracy_low)} to ${percent(drift.estimated_accuracy_high)})`
      : isKnown(drift?.prequential_accuracy) ? `newest batch: ${percent(drift.prequential_accuracy)}`
      : restored ? RESTORED : unscored ? "no batch was scored yet" : "newest batch: no labels");
  tile("likelihood", decimal(drift?.log_likelihood_mean), "nats per sample, newest batch");
  tile("rate", isKnown(now.rate) ? `${decimal(now.rate, 2)}/s` : UNKNOWN,
    `${count(drift?.stream_samples)} samples read`);
  tile("backlog", count(model?.backlog), !model ? "" : model.backlog ? `${model.backlog === 1 ? "batch waits" : "batches wait"} to be learned` : "all that came is learned");
  tile("version", model?.model_version ? count(model.model_version) : model ? "none" : UNKNOWN,
    model ? `${plural(model.classes.length, "class", "classes")}, ${plural(model.components, "component")}` : "");
}

/** @param {string} name @param {string} value @param {string} note */
function tile(name, value, note) {
  const cell = byId(`tile-${name}`);
  say(cell.querySelector(".value"), value);
  cell.classList.toggle("unknown", value === UNKNOWN);
  say(cell.querySelector(".note"), note);
}

/**
 * The phase, its name, and a sentence.
 * @param {Now} now
 * @returns {[string, string, string]}
 */
function inWords({ drift, model, samples, boundary, report, reached, problem }) {
  if (problem?.status === FORBIDDEN) return ["away", "Not with this key", problem.message];
  if (!drift) return ["away", problem ? "No news" : "Connecting", problem?.message ?? "Asking the service how it does."];
  if (problem && report.tried - report.asked > AWAY_MS) {
    const last = `What you see is from ${clock(reached.time)}, ${lasting((report.tried - reached.at) / 1000)} ago.`;
    return problem.type === "unreachable"
      ? ["away", "Service out of reach", `${problem.message} ${last} The trainer may be well.`]
      : ["away", "No news", `${problem.message} ${last}`];
  }
  const silent = report.asked - report.at; // while nothing is told, it may speak
  if (silent > SILENT_MS) {
    return ["away", "Trainer is silent", `It has not reported for ${lasting(silent / 1000)}; what you see is from before.`];
  }
  if (!drift.stream_samples) {
    return ["empty", "Waiting for samples", `Nothing has come yet. Send a batch to POST ${new URL("ingest", location.href).pathname}, or run: gmr ingest FILE.csv --label-column NAME${options()}`];
  }
  const where = `Sub-task ${drift.sub_task}${isKnown(drift.recurrence_of) ? `, a return of sub-task ${drift.recurrence_of}` : ""}, ${plural(samples ?? drift.samples_since_boundary, "sample")} so far.`;
  if (drift.mode === "frozen") {
    return ["frozen", "Frozen", `Batches are scored and counted, and nothing is learned. ${plural(drift.passed_samples, "sample has", "samples have")} passed by so far. ${where}`];
  }
  if (drift.mode === "detect_only") {
    const seen = { warning: "A change is suspected.", armed: "The detector watches every batch.", learning: "The detector has no reference yet." };
    return ["frozen", "Detecting only", `Changes are told and not crossed, and nothing is learned. ${seen[/** @type {keyof typeof seen} */ (drift.phase)] ?? ""} ${where}`];
  }
  if (drift.loaded === false) {
    return [drift.phase, "Quiet", `Nothing comes, so the trainer has let the model go. It answers as before, and the next batch brings it back. ${where}`];
  }
  if (boundary && drift.time - boundary.time < RECENT_S) {
    return ["boundary", `Boundary ${boundary.boundary} found`, `The stream changed at sample ${count(boundary.estimated_start_sample)}. ${where}`];
  }
  if (drift.phase === "warning") {
    return ["warning", "A change is suspected", `${plural(drift.set_aside_batches, "batch", "batches")} set aside until that is decided. ${where}`];
  }
  if (drift.phase === "learning" && !drift.model_version && drift.awaiting) {
    return ["learning", "Waiting for labels", `${plural(drift.awaiting, "sample waits", "samples wait")} for labels, and nothing is learned yet. Send labels to POST /labels, or samples that have them.`];
  }
  if (drift.phase === "learning" && drift.detector === "none") {
    return ["learning", "Learning", `Nothing looks for changes (GMR_DETECTOR=none); boundaries are those that are declared. ${where}`];
  }
  if (drift.phase === "learning") {
    const why = UNARMED[/** @type {keyof typeof UNARMED} */ (drift.unarmed_reason)] ?? "";
    const until = isKnown(drift.armed_in) ? `The detector may speak in about ${plural(drift.armed_in, "sample")}.` : "When the detector may speak is not known.";
    return ["learning", isKnown(drift.armed_in) ? `Learning, armed in ${plural(drift.armed_in, "sample")}` : "Learning", `${why}${until} ${where}`];
  }
  const creeping = drift.feature_drift?.drifting ?? 0;
  if (creeping && !model?.image_shape) {
    return ["armed", `Armed, ${creeping === 1 ? "1 feature creeps" : `${count(creeping)} features creep`}`, `The detector finds no boundary; what creeps is under Drift of features. ${where}`];
  }
  return ["armed", "Armed, nothing has changed", `The detector watches every batch. ${where}`];
}

/**
 * Every detector beside the others: how near each is to an alarm.
 * @param {any} drift
 * @param {import("./curve.js").Point[]} points
 */
export function showDetectors(drift, points) {
  if (!drift) return;
  const shadows = drift.shadows ?? [];
  const signals = Object.keys(drift.statistics).filter((name) => !shadows.includes(name));
  const ratio = (/** @type {string} */ name) => {
    const threshold = drift.thresholds[name];
    return threshold ? drift.statistics[name] / threshold : null;
  };
  const deciding = drift.threshold ? drift.statistic / drift.threshold : null;
  const highest = (/** @type {string} */ name) => points.reduce((most, point) => Math.max(most, point.ratios[name] ?? -Infinity), -Infinity);
  const peaks = shadows.map(highest);
  const facts = [drift.detector, deciding, shadows.map(ratio), signals.map(ratio), peaks, drift.boundaries, drift.bursts];
  show(byId("detectors"), facts, () => [
    row(drift.detector, drift.detector === "none" ? "boundaries are declared" : "decides", deciding, `${plural(drift.boundaries, "boundary", "boundaries")}, ${plural(drift.bursts, "burst")}`),
    ...shadows.map((/** @type {string} */ name, /** @type {number} */ place) =>
      row(name, "shadow", ratio(name), isKnown(peaks[place]) ? `highest shown: ${decimal(peaks[place], 2)}` : "")),
  ]);
  const compared = shadows.length ? drift.detectors ?? [] : [];
  byId("compared").hidden = compared.length === 0;
  show(byId("compared-rows"), compared, () => compared.map((/** @type {any} */ one) => make("tr", {},
    make("th", { scope: "row" }, one.detector, " ", make("small", {}, one.decides ? "decides" : "shadow")),
    ...[one.alarms, one.matched, one.missed, one.extra].map((number) => make("td", {}, count(number))),
    make("td", {}, isKnown(one.delay_samples_median) ? count(Math.round(one.delay_samples_median)) : UNKNOWN))));
  show(byId("signals"), signals.map(ratio), () => signals.length < 2 ? [make("tr", {}, make("td", { colspan: 3 }, "This detector has one signal."))]
    : signals.map((name) => row(name, SIGNALS[name] ?? "", ratio(name), null)));
}

/** @type {Record<string, string>} */
const SIGNALS = {
  inliers: "samples become less likely",
  likelihood: "samples become more likely",
  doubt: "samples lie between classes",
  occupancy: "other components fill",
  labels: "labels contradict what is known",
  features: "a single feature has moved",
  fused: "all together; this decides",
};

/** @param {string} name @param {string} role @param {number | null} ratio @param {string | null} said */
function row(name, role, ratio, said) {
  const level = ratio === null ? "none" : ratio >= 1 ? "alarm" : ratio >= 0.7 ? "near" : "calm";
  return make("tr", {},
    make("th", { scope: "row" }, name, " ", make("small", {}, role)),
    make("td", {}, make("span", { class: "meter", "data-level": level, share: Math.min(1, Math.max(0, ratio ?? 0)) }),
      make("span", { class: "figure" }, ratio === null ? UNKNOWN : `${decimal(ratio, 2)} of 1`)),
    said === null ? null : make("td", { class: "faint" }, said));
}
