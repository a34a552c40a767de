// Boundaries: the list of all, and the page of one with its evidence.

import { byId, make, named, say, show } from "./element.js";
import { UNKNOWN, clock, count, decimal, isKnown, percent, plural } from "./format.js";
import { caption, extent, picture, portions } from "./picture.js";
import { get, post } from "./service.js";
import { amount, inShort } from "./usual.js";
import { goBack } from "./versions.js";

const MOST_LISTED = 100;
const NO_SUCH = [404, 422]; // an id that is none, too

/** @type {Record<string, string>} */
const SIGNALS = {
  inliers: "samples became less likely",
  likelihood: "samples became more likely",
  doubt: "samples lie between what is known",
  occupancy: "other components, classes or ranks than usual",
  labels: "labels contradict what was known of such samples",
  features: "a single feature lies elsewhere than usual",
};

/** In words, what kind of change it was. @param {any} row @param {any} model */
export function cause(row, model) {
  if (row.detector === "declared") return "declared by a person";
  const kind = isKnown(row.recurrence_of) ? `sub-task ${row.recurrence_of} has come back`
    : bothWays(row) ? "some samples became more likely, others less"
    : SIGNALS[row.signal] ?? (row.signal ? `signal ${row.signal}` : `found by ${row.detector}`);
  const [first] = row.explanation?.features ?? [];
  // Single pixels say nothing to people.
  return first && !model?.image_shape ? `${kind}: ${changed(first)}` : kind;
}

/** Whether the mean of likelihoods has gone the other way than the signal: that is of some only. @param {any} row */
function bothWays(row) {
  const effect = row.explanation?.effect;
  return isKnown(effect) && (row.signal === "likelihood" ? effect < 0 : row.signal === "inliers" && effect > 0);
}

/** @param {any} one feature of an explanation */
function nameOf(one) {
  return one.name ?? `feature ${one.feature}`;
}

/** How a feature has changed, with amount. @param {any} one feature of an explanation */
export function changed(one) {
  const name = nameOf(one);
  const deviation = one.deviation_before ?? one.deviation_now;
  const now = `${name} ${amount(one.mean, deviation)}`;
  if (!isKnown(one.before)) return now;
  if (one.deviation_now === 0 && one.deviation_before) return `${name} stays at ${amount(one.mean, deviation)}, before it varied by ${decimal(one.deviation_before, 2)}`;
  const spread = isKnown(one.deviation_now) && isKnown(one.deviation_before) && Math.abs(one.mean - one.before) < 0.5 * one.deviation_before
    && (one.deviation_now > 1.5 * one.deviation_before || one.deviation_now < one.deviation_before / 1.5);
  return spread ? `${name} varies by ${decimal(one.deviation_now, 2)}, before by ${decimal(one.deviation_before, 2)}`
    : `${now}, before ${amount(one.before, deviation)}`;
}

/** @param {any[]} boundaries oldest first @param {any} model */
export function showBoundaries(boundaries, model) {
  byId("boundaries-none").hidden = boundaries.length > 0;
  const rows = boundaries.slice(-MOST_LISTED).reverse();
  show(byId("boundaries"), rows.map((row) => [row.id, row.dropped, row.notes?.length, cause(row, model)]), () => rows.map((row) =>
    make("li", { class: row.dropped ? "dropped" : null },
      make("a", { href: `#/boundary/${row.id}` },
        make("b", {}, `Boundary ${row.boundary}`),
        make("span", { class: "cause" }, cause(row, model)),
        make("span", { class: "faint" }, [
          `sample ${count(row.estimated_start_sample)} · ${clock(row.time)}`,
          isKnown(row.severity) ? `severity ${decimal(row.severity, 2)}` : "",
          row.notes?.length ? plural(row.notes.length, "note") : "",
          row.dropped ? "dropped by a rollback" : "",
        ].filter(Boolean).join(" · "))))));
}

/**
 * The page of one boundary.
 * @param {string} id
 * @param {any} model
 * @param {any[]} kept versions that can be gone back to
 * @param {() => void} again called when another version may answer
 * @param {() => boolean} still whether it is this one that somebody wants to see
 * @returns {Promise<boolean>} whether there is nothing more to ask for
 */
export async function openBoundary(id, model, kept, again, still) {
  const place = byId("boundary-page");
  place.replaceChildren(make("p", {}, "Asking for its evidence."));
  let row;
  try {
    row = await get(`drift/boundaries/${encodeURIComponent(id)}`);
  } catch (problem) {
    if (!still()) return true;
    const { status, message } = /** @type {import("./service.js").Problem} */ (problem);
    place.replaceChildren(make("h2", { tabindex: -1 }, NO_SUCH.includes(status) ? "No such boundary" : "Not known at the moment"), make("p", {}, message));
    return NO_SUCH.includes(status);
  }
  if (!still()) return true;
  const why = row.explanation ?? {};
  const before = kept.find((one) => one.version === row.version_before);
  const late = row.sample_index - row.estimated_start_sample;
  place.replaceChildren(
    make("h2", { tabindex: -1, id: "boundary-title" }, `Boundary ${row.boundary}: sub-task ${row.sub_task} begins`),
    make("p", { class: "lead" }, `${capital(cause(row, model))}. `, `The change probably began at sample ${count(row.estimated_start_sample)}; it was found ${late > 0 ? `${plural(late, "sample")} later` : "in the same batch"}, ${clock(row.time)}.`),
    row.dropped ? make("p", { class: "notice" }, "A rollback or an upload has taken this boundary out of the model's past.") : "",
    make("dl", { class: "facts" },
      fact("Severity", severity(row)),
      fact("Evidence", odds(row, why)),
      fact("Fit of the new samples", isKnown(why.effect) ? `${decimal(Math.abs(why.effect), 2)} deviations ${why.effect < 0 ? "worse" : "better"} than usual` : UNKNOWN),
      fact("Log-likelihood", isKnown(why.log_likelihood_now) ? `${decimal(why.log_likelihood_before)} → ${decimal(why.log_likelihood_now)} nats` : UNKNOWN),
      fact("Inliers among the new", percent(why.inliers)),
      fact("New samples", isKnown(why.samples) ? `${count(why.samples)}, ${count(why.examined)} looked at` : UNKNOWN),
      fact("Found by", row.signal ? `${row.detector}, signal ${row.signal}` : row.detector),
      fact("Again", isKnown(row.recurrence_of) ? `sub-task ${row.recurrence_of}` : "no, a new sub-task"),
      row.mixed_samples ? fact("Mixed", `${plural(row.mixed_samples, "sample")} learned as the end of the old`) : "",
      fact("Began in entry", row.estimated_start_entry_id ?? UNKNOWN)),
    ...prototypes(why, model),
    make("div", { class: "columns" }, features(why), classes(why), labels(why), components(why)),
    make("h3", { id: "notes-title" }, "Notes"),
    make("ul", { id: "notes", class: "notes", "aria-labelledby": "notes-title" }, notes(row.notes ?? [])),
    make("form", { id: "note-form", onsubmit: (/** @type {SubmitEvent} */ event) => void add(event, row.id) },
      make("p", {}, make("label", {}, "What do you know about it? ", make("textarea", { id: "note-text", rows: 2, maxlength: 2000, required: true }))),
      make("p", { class: "buttons" }, make("button", {}, "Add the note"))),
    make("h3", {}, "Versions"),
    make("p", {}, `Version ${count(row.version_before)} answered before, version ${count(row.version_after)} was the first after. `,
      before ? goBack(before, model, again) : `Version ${count(row.version_before)} is not kept any more.`),
    make("p", { class: "faint" }, make("a", { href: `drift/boundaries/${row.id}` }, "All of it as JSON")));
  return true;
}

/** @type {Record<string, string>} */
const VIEWS = {
  likelihood: "by their likelihood",
  components: "by the components that they fall on",
  features: "by a single feature",
  labels: "by their labels",
};

/** @param {any} row */
function severity(row) {
  if (!isKnown(row.severity)) return UNKNOWN;
  return [make("span", { class: "meter", "data-level": "plain", share: row.severity }),
    make("span", { class: "figure" }, decimal(row.severity, 2)),
    ` of 1: at least that share of the new samples is other than before, ${VIEWS[row.severity_view] ?? ""}`];
}

/** @param {any[]} said oldest first */
function notes(said) {
  if (!said.length) return [make("li", { class: "none" }, "None yet.")];
  return said.map((one) => make("li", {}, make("p", {}, one.text),
    make("small", {}, `${one.by ?? "somebody"}, ${clock(one.time)}`)));
}

/** @param {SubmitEvent} event @param {string} id */
async function add(event, id) {
  event.preventDefault();
  const box = byId("note-text");
  try {
    await post(`drift/boundaries/${encodeURIComponent(id)}/notes`, { text: box.value });
    box.value = "";
    byId("notes").replaceChildren(...notes((await get(`drift/boundaries/${encodeURIComponent(id)}`)).notes));
    say(byId("said"), "The note is kept.");
  } catch (problem) {
    say(byId("said"), /** @type {Error} */ (problem).message);
  }
}

/** @param {any} row @param {any} why */
function odds(row, why) {
  const { statistic, threshold } = row.evidence ?? {};
  if (!isKnown(statistic) || !isKnown(threshold)) return UNKNOWN;
  const by_chance = isKnown(why.p_value) ? `; by chance ${why.p_value < 1e-300 ? "practically never" : `p ≤ ${decimal(why.p_value, 2)}`}` : "";
  return `statistic ${decimal(statistic)}, an alarm is at ${decimal(threshold)}${by_chance}`;
}

/** @param {string} name @param {any} value */
function fact(name, value) {
  return make("div", {}, make("dt", {}, name), make("dd", {}, value));
}

/** @param {any} why @param {any} model */
function prototypes(why, model) {
  const groups = why.prototypes ?? [];
  const shape = model?.image_shape ?? null;
  if (!groups.length) return [];
  const range = extent(groups.map((/** @type {any} */ group) => group.features));
  const most = Math.max(...(why.contributions ?? []), 1e-12);
  const said = (/** @type {any} */ group) => (shape ? "" : inShort(group.features));
  return [
    make("h3", {}, "What the new samples look like"),
    make("p", { class: "faint" }, caption(groups.map((/** @type {any} */ group) => group.features), shape)),
    make("ul", { class: "prototypes" },
      groups.map((/** @type {any} */ group) => make("li", {},
        picture(group.features, shape, `Mean of ${group.samples} new samples`, range),
        make("small", {}, `mean of ${plural(group.samples, "sample")}`),
        said(group) ? make("small", { title: "In deviations from usual" }, said(group)) : null)),
      why.contributions?.length ? make("li", {},
        portions(why.contributions.map((/** @type {number} */ share) => share / most), shape, "Where they differ from what was expected"),
        make("small", {}, "where they differ"),
        !shape && why.features?.length ? make("small", {}, nameOf(why.features[0])) : null) : null),
  ];
}

/** @param {any} why */
function features(why) {
  const rows = why.features ?? [];
  return section("Features that changed", rows, ["feature", "share of the change", "mean now, before", "deviation now, before"], (one) => [
    one.name ? [named(one.name), " ", make("small", { class: "faint" }, `feature ${one.feature}`)] : `${one.feature}`, bar(one.share, rows[0].share), `${decimal(one.mean, 4)}, ${decimal(one.before, 4)}`,
    `${decimal(one.deviation_now)}, ${decimal(one.deviation_before)}`]);
}

/** @param {any} why */
function classes(why) {
  return section("Classes, before and now", why.classes ?? [], ["class", "before", "now"], (one) => [
    named(one.label), bar(one.before), bar(one.now)]);
}

/** @param {any} why */
function components(why) {
  const rows = why.components ?? [];
  const most = Math.max(...rows.map((/** @type {any} */ one) => Math.max(one.before, one.now)), 1e-12);
  return section("Components that fill or drain", rows, ["component", "before", "now"], (one) => [
    `${one.component}`, bar(one.before, most), bar(one.now, most)]);
}

/** @param {any} why */
function labels(why) {
  return section("Called something else", why.labels ?? [], ["before", "now", "samples"], (one) => [
    named(one.before), named(one.now), count(one.samples)]);
}

/**
 * @param {string} title
 * @param {any[]} rows
 * @param {string[]} heads
 * @param {(row: any) => any[]} cells
 */
function section(title, rows, heads, cells) {
  if (!rows.length) return "";
  return make("section", {},
    make("h3", {}, title),
    make("div", { class: "wide", role: "region", "aria-label": title, tabindex: 0 },
      make("table", {},
        make("thead", {}, make("tr", {}, heads.map((head) => make("th", { scope: "col" }, head)))),
        make("tbody", {}, rows.map((row) => {
          const [head, ...rest] = cells(row);
          return make("tr", {}, make("th", { scope: "row" }, head), rest.map((cell) => make("td", {}, cell)));
        })))));
}

/** @param {number | null} share @param {number} [most] that fills the bar */
function bar(share, most = 1) {
  if (!isKnown(share)) return make("span", { class: "faint" }, UNKNOWN);
  return [make("span", { class: "meter", "data-level": "plain", share: Math.min(1, share / most) }),
    make("span", { class: "figure" }, percent(share))];
}

/** @param {string} text */
function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}

/** Show the page of a boundary, or the overview. @param {string | null} id */
export function turn(id) {
  byId("overview").hidden = id !== null;
  byId("boundary").hidden = id === null;
}
