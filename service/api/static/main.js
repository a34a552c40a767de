// The dashboard: what is known of the service, kept fresh by its events, and shown.
//
// First the history is asked for, then events are followed from where it ends: nothing is missed
// and nothing comes twice. After a break all is asked for again: the service may have another model
// by now. State that the trainer reports is asked for every second or two; what seldom changes is
// asked for again when an event says so.

import { openBoundary, showBoundaries, turn } from "./boundary.js";
import { Charts } from "./charts.js";
import { showClasses, showShares } from "./classes.js";
import { Curve } from "./curve.js";
import { byId, make, say, show } from "./element.js";
import { showFeatures } from "./features.js";
import { Feed } from "./feed.js";
import { count, plural } from "./format.js";
import { tellRefused } from "./key.js";
import * as gate from "./gate.js";
import { showModels } from "./models.js";
import * as modes from "./modes.js";
import * as names from "./names.js";
import { showOutliers } from "./outliers.js";
import { showProposals } from "./proposals.js";
import { showRetention } from "./retention.js";
import * as sample from "./sample.js";
import { get, reached } from "./service.js";
import { showDetectors, showStatus } from "./status.js";
import { Throughput } from "./throughput.js";
import { looks, showTimeline, subTasks } from "./timeline.js";
import { doubtUsual, forgetUsual, keepUsual } from "./usual.js";
import { showVersions } from "./versions.js";

const STATE_MS = 1000;
const SELDOM_MS = 15_000;
const DRAW_MS = 250;
const MISSED_MS = 3000;
const SAID_MS = 120_000;
const POINTS = 500;
const OUTLIERS = 24;

const known = {
  /** @type {any} */ drift: null,
  /** @type {any} */ model: null,
  /** @type {any[]} */ boundaries: [],
  /** @type {any[]} */ proposals: [],
  /** @type {any[]} */ outliers: [],
  /** @type {any} */ versions: null,
  curve: new Curve(),
  throughput: new Throughput(),
  report: { time: 0, at: performance.now(), asked: performance.now(), tried: performance.now() },
  /** @type {import("./service.js").Problem | null} */ problem: null,
};

let range = "all";
const charts = new Charts();
const feed = new Feed(heard, (live) => {
  byId("link").dataset.live = String(live);
  say(byId("link"), live ? "live" : "reconnecting");
}, anew);

// What is asked ---------------------------------------------------------------------------------

/** Questions so far, of each kind: an answer that comes after that of a later question is not shown. @type {Record<string, number>} */
const asked = {};
let answered = 0;

async function state() {
  const turn = (asked.state = (asked.state ?? 0) + 1);
  const [drift, model] = await Promise.allSettled([get("drift"), get("model")]);
  if (turn < answered) return;
  answered = turn;
  known.report.tried = performance.now();
  tellRefused("phase-says", drift.status === "rejected" ? drift.reason : null);
  if (model.status === "fulfilled" && known.model && known.model.name !== model.value.name) otherModel();
  if (drift.status === "fulfilled") {
    known.report.asked = performance.now();
    known.drift = drift.value;
    known.problem = null;
    known.throughput.add(drift.value);
    if (drift.value.heartbeat_time !== known.report.time) Object.assign(known.report, { time: drift.value.heartbeat_time, at: performance.now() });
  } else known.problem = drift.reason;
  if (model.status === "fulfilled") {
    const other = known.versions && known.model?.model_version !== model.value.model_version;
    known.model = model.value;
    if (other) known.versions.model_version = model.value.model_version;
  }
  draw();
}

/**
 * Ask again, and show: once a second at most, however many events want it.
 * @param {"boundaries" | "proposals" | "outliers" | "versions"} what
 */
function again(what) {
  const before = asking.get(what);
  if (before) {
    more.add(what);
    return before;
  }
  const now = ask(what);
  asking.set(what, now);
  void now.then(() => setTimeout(() => {
    asking.delete(what);
    if (more.delete(what)) void again(what);
  }, STATE_MS));
  return now;
}

/** Questions of this second, and those to ask once more after it. @type {Map<string, Promise<void>>} */
const asking = new Map();
/** @type {Set<string>} */
const more = new Set();

/** @param {"boundaries" | "proposals" | "outliers" | "versions"} what */
async function ask(what) {
  const paths = { boundaries: "drift/boundaries", proposals: "drift/proposals", outliers: `drift/quarantine?last=${OUTLIERS}`, versions: "model/versions" };
  try {
    const answer = await get(paths[what]);
    known[what] = what === "versions" ? answer : answer[what];
    tellRefused(`${what}-none`, null);
    draw();
  } catch (problem) {
    tellRefused(`${what}-none`, problem); // else away for the moment, and asked again soon
  }
}

function everything() {
  for (const what of /** @type {const} */ (["boundaries", "proposals", "outliers", "versions"])) void again(what);
  void showModels().catch(() => { /* away for the moment; asked again soon */ });
  if (unopened) void route();
}

/** Ask for all of it again: what is known may be of another model, or of long ago. */
function anew() {
  known.throughput = new Throughput();
  looks.doubt();
  doubtUsual();
  void state();
  void history();
  everything();
}

/** Forget the one that answered before. */
function otherModel() {
  Object.assign(known, { curve: new Curve(), drift: null, boundaries: [], proposals: [], outliers: [], versions: null });
  looks.forget();
  forgetUsual();
  charts.forget();
  void history();
  everything();
}

async function history() {
  const turn = (asked.history = (asked.history ?? 0) + 1);
  try {
    const [newest] = range === "all" ? [] : (await get("drift/history?last=1")).history;
    const since = newest ? `&since=${newest.time - Number(range)}` : "";
    const answer = await get(`drift/curve?points=${POINTS}${since}`);
    if (turn !== asked.history) return;
    known.curve = Curve.of(answer);
    feed.follow(answer.last_id);
    draw();
  } catch {
    setTimeout(() => turn !== asked.history || document.hidden || history(), 2 * STATE_MS);
  }
}

/** @param {string} kind @param {any} event @param {string} id */
function heard(kind, event, id) {
  if (kind === "batch_learned" || kind === "batch_set_aside" || kind === "batch_passed") {
    known.curve.add(event);
    if (range !== "all") known.curve.forget(event.time - Number(range));
  }
  if (kind === "boundary") {
    if (!known.boundaries.some((row) => row.id === id)) known.boundaries = [...known.boundaries, { ...event, id, dropped: false }];
    say(byId("said"), `Boundary ${event.boundary}: sub-task ${event.sub_task} begins.`);
    setTimeout(() => { void again("boundaries"); void again("versions"); }, STATE_MS);
  }
  if (kind === "change_detected") say(byId("said"), `A change at sample ${count(event.estimated_start_sample)} is told and not crossed: the model is at rest.`);
  if (kind === "settings_changed") {
    const settings = Object.entries(event.settings).map(([name, value]) => `${name} is ${value ?? "none"}`);
    say(byId("said"), `From now on ${settings.join(", ")}${event.by ? `, asked for by ${event.by}` : ""}.`);
  }
  if (kind === "classes_merged") say(byId("said"), `Class ${event.label_before} is part of class ${event.label} from now on${event.by ? `, asked for by ${event.by}` : ""}.`);
  if (kind === "class_renamed") say(byId("said"), `Class ${event.label_before} is called ${event.label} from now on${event.by ? `, asked for by ${event.by}` : ""}.`);
  if (kind === "entries_lost") say(byId("said"), `${plural(event.entries, "entry was", "entries were")} given up that no checkpoint held. What they brought may be sent again.`);
  if (kind === "samples_repeated") say(byId("said"), `From sample ${count(event.estimated_start_sample)} on samples come again that were learned before: no change.`);
  if (kind === "features_drifting") {
    const names = event.features.map((/** @type {any} */ one) => one.name ?? `feature ${one.feature}`);
    say(byId("said"), `${names.join(", ")} ${names.length === 1 ? "creeps" : "creep"}: no boundary, and learned as it goes.`);
  }
  if (kind === "mode_changed" || kind === "ert_changed") void state();
  if (kind === "class_proposed" || kind === "proposal_closed" || kind === "class_renamed" || kind === "classes_merged") setTimeout(() => again("proposals"), STATE_MS);
  if (kind === "outlier_burst" || kind === "outlier_burst_continued") void again("outliers");
  if (kind === "model_restored") setTimeout(everything, STATE_MS);
  if (kind === "missed") setTimeout(history, MISSED_MS);
  draw();
}

// What is shown ---------------------------------------------------------------------------------

let due = false;

/** Show what is known, a few times a second at most, and never while nobody looks. */
function draw() {
  if (due) return;
  due = true;
  setTimeout(() => requestAnimationFrame(() => {
    due = false;
    drawNow();
  }), DRAW_MS);
}

function drawNow() {
  const { drift, model, boundaries, curve } = known;
  const past = boundaries.filter((row) => !row.dropped);
  void keepUsual(model, draw);
  showStatus({ drift, model, samples: subTasks(boundaries, drift).at(-1)?.samples ?? null, rate: known.throughput.rate, boundary: past.at(-1) ?? null, report: known.report, reached, problem: known.problem });
  showClasses(drift);
  names.showNames(model);
  showShares(drift);
  showFeatures(drift, model);
  showDetectors(drift, curve.points);
  showTimeline(boundaries, drift, model, draw);
  showBoundaries(boundaries, model);
  showRetention(model);
  showProposals(known.proposals, model, () => void again("proposals"));
  showOutliers(known.outliers, model);
  if (model) {
    say(byId("name"), model.name);
    byId("name").title = model.name;
    document.title = `gmr-stream: ${model.name}`;
  }
  modes.showMode(drift, () => void state());
  gate.showGate(drift);
  showVersions(known.versions, model, everything);
  sample.fit(model);
  show(byId("known-classes"), model?.classes?.map((/** @type {any} */ one) => one.label), () =>
    (model?.classes ?? []).map((/** @type {any} */ one) => make("option", { value: one.label })));
  const marks = past.map((row) => ({ time: row.time, name: String(row.boundary) }));
  if (!byId("overview").hidden) charts.update(curve.points, marks, drift?.shadows ?? []);
}

/** Whether the page of a boundary has yet to be told what it is about. */
let unopened = false;

async function route() {
  const [, id] = /^#\/boundary\/([0-9-]+)$/.exec(location.hash) ?? [null, null];
  turn(id);
  unopened = false;
  if (id === null) {
    // A link from the page of a boundary to a section of the overview, which was hidden until now.
    if (/^#[a-z-]+$/.test(location.hash)) document.getElementById(location.hash.slice(1))?.scrollIntoView();
    return draw();
  }
  known.model ??= await get("model").catch(() => null);
  await keepUsual(known.model);
  if (!known.versions) await again("versions");
  const still = () => location.hash === `#/boundary/${id}`;
  if (!still()) return;
  const opened = await openBoundary(id, known.model, known.versions?.versions ?? [], everything, still);
  if (!still()) return;
  unopened = !opened;
  scrollTo(0, 0);
  byId("boundary-page").querySelector("h2")?.focus();
}

for (const choice of byId("range").querySelectorAll("input")) {
  choice.addEventListener("change", () => {
    range = choice.value;
    charts.rebuild();
    void history();
  });
}
/** What was said stays for a while. @type {ReturnType<typeof setTimeout> | undefined} */
let hushing;
new MutationObserver(() => {
  clearTimeout(hushing);
  hushing = setTimeout(() => say(byId("said"), ""), SAID_MS);
}).observe(byId("said"), { childList: true });
addEventListener("hashchange", route);
modes.listen(() => void state());
gate.listen(() => void state());
names.listen(() => void state());
sample.begin(() => known.model);
void route();
void state();
void history();
everything();
setInterval(() => document.hidden || asked.state > answered || state(), STATE_MS);
setInterval(() => document.hidden || everything(), SELDOM_MS);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  void state();
  everything();
});
