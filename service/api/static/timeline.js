// The sub-tasks of the stream in their order, each with what it showed; one that came back has the
// colour of the first time, and an arc that leads there.

import { changed } from "./boundary.js";
import { byId, enumerated, make, say, show, showEach } from "./element.js";
import { byLabel, isKnown, plural } from "./format.js";
import { caption, extent, picture } from "./picture.js";
import { drawn, get } from "./service.js";
import { inShort, usualKey } from "./usual.js";

const HUES = [212, 28, 158, 285, 48, 340, 190, 100];
const PER_CLASS = 2;
const MOST_CLASSES = 12;
const MOST_CARDS = 60;
const REFRESH_MS = 60_000;
const MOST_AT_ONCE = 5; // a browser has six connections to one service, and events need one
const BETWEEN_MS = 2000; // two questions about what was shown before
const MOST_KEPT = 400;

/**
 * @typedef {object} SubTask
 * @property {number} number
 * @property {number | null} returnOf
 * @property {number} concept the sub-task that it was at first
 * @property {number} start sample
 * @property {number} samples
 * @property {any} boundary with which it began; null for the first
 */

/**
 * The sub-tasks that the boundaries of the model's past make.
 * @param {any[]} boundaries
 * @param {any} drift
 * @returns {SubTask[]}
 */
export function subTasks(boundaries, drift) {
  if (!drift?.stream_samples) return [];
  const kept = boundaries.filter((row) => !row.dropped);
  const starts = [0, ...kept.map((row) => row.estimated_start_sample)];
  const begin = kept.length ? kept[0].sub_task - 1 : drift.sub_task;
  /** @type {Map<number, number>} */
  const concepts = new Map();
  return starts.map((start, place) => {
    const boundary = place ? kept[place - 1] : null;
    const number = boundary ? boundary.sub_task : begin;
    const returnOf = boundary?.recurrence_of ?? null;
    const concept = returnOf === null ? number : concepts.get(returnOf) ?? returnOf;
    concepts.set(number, concept);
    const end = starts[place + 1] ?? drift.stream_samples;
    const samples = Math.max(0, end - start - dropped(drift.dropped_stretches ?? [], start, end));
    return { number, returnOf, concept, start, samples, boundary };
  });
}

/**
 * Samples between two places that a rollback or an upload has taken out of the model's past.
 * @param {{first: number, end: number}[]} stretches
 * @param {number} start
 * @param {number} end
 */
function dropped(stretches, start, end) {
  return stretches.reduce((sum, one) => sum + Math.max(0, Math.min(end, one.end) - Math.max(start, one.first)), 0);
}

/** @param {number} concept */
export function hue(concept) {
  return HUES[concept % HUES.length];
}

/**
 * What sub-tasks look like: pictures, kept, and asked for again where the model may draw others.
 * However many there are, that is a question every other second.
 */
export class Looks {
  constructor() {
    /** Those that were looked at last are the last. @type {Map<string, {version: number, at: number, samples: number[][]}>} */
    this.kept = new Map();
    /** @type {Set<string>} */
    this.asked = new Set();
    /** Questions for when another is answered; made anew whenever the page is drawn. @type {Map<string, () => void>} */
    this.waiting = new Map();
    this.renewed = -Infinity;
    this.doubts = 0;
  }

  /**
   * @param {string} key
   * @param {number} version
   * @param {() => Promise<number[][]>} ask
   * @param {() => void} then
   * @param {boolean} [seen] whether somebody sees it: what nobody sees is not asked for
   */
  of(key, version, ask, then, seen = true) {
    const kept = this.kept.get(key);
    if (kept && seen) {
      this.kept.delete(key);
      this.kept.set(key, kept);
    }
    const now = performance.now();
    const old = !kept || (kept.version !== version && now - kept.at > REFRESH_MS && now - this.renewed > BETWEEN_MS);
    if (!seen || !old || this.asked.has(key)) return kept?.samples ?? null;
    const begin = () => {
      if (kept) this.renewed = now;
      const { doubts } = this;
      this.asked.add(key);
      // What failed is asked for again, in a while.
      ask().then((samples) => ({ version, samples }), () => ({ version: NaN, samples: kept?.samples ?? [] })).then((found) => {
        this.asked.delete(key);
        if (doubts === this.doubts) this.kept.set(key, { ...found, at: performance.now() });
        if (this.kept.size > MOST_KEPT) this.kept.delete([...this.kept.keys()][0]);
        const [next] = this.waiting;
        if (next) {
          this.waiting.delete(next[0]);
          next[1]();
        }
        then();
      });
    };
    if (this.asked.size < MOST_AT_ONCE) begin();
    else if (!kept) this.waiting.set(key, begin);
    return kept?.samples ?? null;
  }

  /** Another model may answer by now: what is kept is shown until it is asked for again. */
  doubt() {
    this.doubts += 1;
    for (const kept of this.kept.values()) Object.assign(kept, { version: NaN, at: -Infinity });
  }

  /** Another model answers. */
  forget() {
    this.doubts += 1;
    this.kept.clear();
  }
}

export const looks = new Looks();

/** Cards that somebody sees. @type {WeakSet<Element>} */
const seen = new WeakSet();
/** @type {WeakSet<Element>} */
const watched = new WeakSet();
let seeMore = () => {};
const watcher = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) isIntersecting ? seen.add(target) : seen.delete(target);
  seeMore();
});

/**
 * @param {any[]} boundaries
 * @param {any} drift
 * @param {any} model
 * @param {() => void} again called when pictures have come
 */
export function showTimeline(boundaries, drift, model, again) {
  const tasks = subTasks(boundaries, drift);
  byId("timeline-none").hidden = tasks.length > 0;
  byId("timeline").hidden = tasks.length === 0;
  if (!tasks.length) return;
  const total = tasks.reduce((sum, task) => sum + task.samples, 0) || 1;
  const places = new Map(tasks.map((task, place) => [task.number, place]));
  const middle = (/** @type {number} */ place) =>
    (1000 * (tasks.slice(0, place).reduce((sum, task) => sum + task.samples, 0) + tasks[place].samples / 2)) / total;

  show(byId("strip"), tasks.map((task) => [task.number, task.concept, Math.round((200 * task.samples) / total)]), () =>
    tasks.map((task) => make("span", { class: "stretch", share: task.samples / total, hue: hue(task.concept) },
      make("b", {}, task.number))));

  const returns = tasks.map((task, place) => ({ task, place })).filter(({ task }) => isKnown(task.returnOf) && places.has(task.returnOf));
  show(byId("arcs"), returns.map(({ task, place }) => [task.number, Math.round(middle(place))]), () =>
    returns.map(({ task, place }) => {
      const [from, to] = [middle(place), middle(/** @type {number} */ (places.get(/** @type {number} */ (task.returnOf))))];
      return make("path", { d: `M${from} 100C${from} ${20} ${to} ${20} ${to} 100`, hue: hue(task.concept) },
        make("title", {}, `Sub-task ${task.number} is a return of sub-task ${task.returnOf}`));
    }));
  byId("arcs").toggleAttribute("hidden", returns.length === 0);

  const held = drift.gate?.held ? drift.gate.served_version : null;
  const recent = tasks.slice(-MOST_CARDS);
  looks.waiting.clear();
  const place = byId("sub-tasks");
  const inSight = new Set([...place.children].filter((one) => seen.has(one)).map((one) => Number(one.dataset.task)));
  const cards = recent.map((task) => ({ task, ...look(task, tasks, drift, model, again, inSight.has(task.number)) }));
  const shape = model?.image_shape ?? null;
  const all = cards.flatMap(({ samples }) => samples ?? []);
  const range = all.length && !shape ? extent(all) : undefined;
  say(byId("sub-tasks-scale"), caption(all, shape));
  showEach(place, cards.map(({ task, classes, samples }) => [
    [task.number, task.concept, task.boundary?.id, task === tasks.at(-1), classes, samples?.length ? null : held],
    () => card(task, classes, task === tasks.at(-1), samples?.length ? null : held)]));
  seeMore = again;
  for (const [at, { task, samples, labels }] of cards.entries()) {
    const shown = place.children[at];
    if (!watched.has(shown)) watcher.observe(shown);
    watched.add(shown);
    say(shown.querySelector(".count"), plural(task.samples, "sample"));
    show(shown.querySelector(".look"), [range, shape, usualKey(), samples?.map(stamp)], () => [
      make("div", { class: "pictures" }, (samples ?? []).map((features, at) =>
        picture(features, shape, labels ? `A sample drawn of class ${labels[at]}` : `What sub-task ${task.number} looks like`, range))),
      shape ? null : told(task, samples)]);
  }
}

/** @type {WeakMap<number[], number>} */
const stamps = new WeakMap();
let stamped = 0;

/** A number for a sample, as long as it is the same. @param {number[]} sample */
function stamp(sample) {
  if (!stamps.has(sample)) stamps.set(sample, stamped += 1);
  return stamps.get(sample);
}

/**
 * What a sub-task showed: its classes where they are known, and pictures.
 * @param {SubTask} task
 * @param {SubTask[]} tasks
 * @param {any} drift
 * @param {any} model
 * @param {() => void} again
 * @param {boolean} inSight
 * @returns {{classes: (string | number)[], samples: number[][] | null, labels?: (string | number)[]}} labels of the samples, where they have any
 */
function look(task, tasks, drift, model, again, inSight) {
  const classes = classesOf(task, tasks, drift, model).toSorted(byLabel);
  const version = model?.model_version ?? 0;
  if (!version) return { classes, samples: null };
  if (classes.length) {
    const found = classes.slice(0, MOST_CLASSES).map((label) => ({ label,
      samples: looks.of(`class ${JSON.stringify(label)}`, version, () => drawn(label, PER_CLASS), again, inSight) ?? [] }));
    return { classes, samples: found.flatMap(({ samples }) => samples), labels: found.flatMap(({ label, samples }) => samples.map(() => label)) };
  }
  if (task.boundary) {
    const samples = looks.of(`boundary ${task.boundary.id}`, 0, async () => {
      const found = await get(`drift/boundaries/${task.boundary.id}`);
      return found.explanation.prototypes.map((/** @type {any} */ group) => group.features);
    }, again, inSight);
    return { classes, samples };
  }
  return { classes, samples: tasks.length === 1 ? looks.of("all", version, () => drawn(null, 6), again, inSight) : null };
}

/**
 * Labels that a sub-task showed; none where that is not known.
 * @param {SubTask} task
 * @param {SubTask[]} tasks
 * @param {any} drift
 * @param {any} model
 * @returns {(string | number)[]}
 */
function classesOf(task, tasks, drift, model) {
  const labels = (/** @type {any} */ row) => row.classes.map((/** @type {any} */ one) => one.label);
  const held = model?.held?.find((/** @type {any} */ row) => row.sub_task === task.number);
  if (held?.classes.length) return labels(held);
  if (task.concept !== task.number) {
    const first = model?.held?.find((/** @type {any} */ row) => row.sub_task === task.concept);
    if (first?.classes.length) return labels(first);
  }
  if (task === tasks.at(-1) && drift && isKnown(drift.prequential_accuracy_mean)) {
    // Of the current one that is new: the classes that no past one showed.
    const past = new Set((model?.held ?? []).flatMap(labels));
    return (model?.classes ?? []).map((/** @type {any} */ one) => one.label).filter((/** @type {any} */ label) => !past.has(label));
  }
  return [];
}

/**
 * @param {SubTask} task
 * @param {(string | number)[]} classes
 * @param {boolean} current
 * @param {number | null} held version that answers meanwhile, where one is held back and nothing can be shown
 */
function card(task, classes, current, held) {
  return make("li", { class: "card", hue: hue(task.concept), "data-task": task.number },
    make("h3", {}, `Sub-task ${task.number}`, current ? make("span", { class: "badge" }, "now") : null),
    isKnown(task.returnOf) ? make("p", { class: "return" }, `↩ return of ${task.returnOf}`) : null,
    make("p", { class: "faint" }, make("span", { class: "count" }, plural(task.samples, "sample")), classes.length ? [` · ${current && task.concept === task.number && task.boundary ? "new here: " : ""}`, ...enumerated(classes, MOST_CLASSES)] : ""),
    isKnown(held) ? make("p", { class: "faint" }, `Nothing to show: version ${held} answers meanwhile, and does not know it.`) : null,
    make("div", { class: "look" }),
    task.boundary ? make("a", { href: `#/boundary/${task.boundary.id}` }, `Why it began`) : null);
}

/** What a sub-task of a table began with, or what is unusual of it. @param {SubTask} task @param {number[][] | null} samples */
function told(task, samples) {
  const [first] = task.boundary?.explanation?.features ?? [];
  if (first) return make("p", { class: "faint" }, changed(first));
  if (!samples?.length) return null;
  const said = inShort(samples[0].map((_, place) => samples.reduce((sum, one) => sum + one[place], 0) / samples.length));
  return said ? make("p", { class: "faint", title: "In deviations from usual" }, `stands out: ${said}`) : null;
}
