// The connection that events come by. A browser allows six to one service, so pages of one model
// share one: the page that holds the lock has it, and passes on what comes. Where there are no
// locks, as over plain HTTP from another machine, each page has a connection of its own.

const NAME = `gmr-stream ${new URL("events", location.href).pathname}`;

/**
 * What pages tell each other: where one begins, whether the connection stands, and events.
 * @typedef {{after: string} | {live: boolean} | {kind: string, event: any, id: string}} Message
 */

export class Line {
  /**
   * @param {(kind: string, event: any, id: string) => void} heard each event once, in order
   * @param {(live: boolean) => void} changed whether the connection stands
   */
  constructor(heard, changed) {
    this.heard = heard;
    this.changed = changed;
    /** Id of the last event that this page knows. */
    this.last = "0";
    /** Id of the last event that has come by the connection, where this page has it. */
    this.at = "0";
    /** @type {EventSource | null} */
    this.source = null;
    this.stands = false;
    /** Ends this page's part in the line; null while it has none. @type {AbortController | null} */
    this.part = null;
    this.others = navigator.locks ? new BroadcastChannel(NAME) : null;
    this.others?.addEventListener("message", ({ data }) => this.part && this.told(data));
  }

  /** Be told of events, and be the one to tell them where nobody else is. */
  join() {
    if (this.part) return;
    const { signal } = (this.part = new AbortController());
    if (!this.others) return this.connect(this.last);
    // Released by the browser, too, when the page is closed or dies: then it is another's turn.
    void navigator.locks.request(NAME, { signal }, () => new Promise((release) => {
      signal.addEventListener("abort", release);
      this.connect(this.last);
    })).catch(() => { /* left before its turn came */ });
    this.others.postMessage({ after: this.last });
  }

  leave() {
    this.part?.abort();
    this.part = null;
    this.source?.close();
    this.source = null;
  }

  /** @param {string} after id of an event */
  connect(after) {
    this.source?.close();
    const source = (this.source = new EventSource(`events?after=${after}`));
    this.at = after;
    this.stands = false;
    source.onopen = () => {
      this.stands = true;
      this.tell({ live: true });
    };
    source.onerror = () => {
      if (this.source === source) this.tell({ live: false });
    };
    for (const kind of KINDS) {
      source.addEventListener(kind, ({ data, lastEventId: id }) => {
        if (id) this.at = id;
        this.tell({ kind, event: JSON.parse(data), id });
      });
    }
  }

  /** Tell every page, this one too. @param {Message} message */
  tell(message) {
    this.others?.postMessage(message);
    this.told(message);
  }

  /** @param {Message} message */
  told(message) {
    if ("after" in message) {
      if (!this.source) return;
      // Somebody who knows less has come: what is told twice, the others leave out.
      if (isLater(this.at, message.after)) this.connect(message.after);
      else if (this.stands) this.others?.postMessage({ live: true });
    } else if ("live" in message) this.changed(message.live);
    else if (message.kind === "missed") this.heard(message.kind, message.event, this.last);
    else if (isLater(message.id, this.last)) {
      this.last = message.id;
      this.heard(message.kind, message.event, message.id);
    }
  }
}

/** @param {string} one id of an event @param {string} other */
function isLater(one, other) {
  const [[ms, place = 0], [otherMs, otherPlace = 0]] = [one, other].map((id) => id.split("-").map(Number));
  return ms > otherMs || (ms === otherMs && place > otherPlace);
}

const KINDS = [
  "batch_learned", "batch_set_aside", "batch_passed", "mode_changed", "change_detected",
  "labels_held", "ert_changed", "settings_changed", "class_renamed", "classes_merged", "set_aside_released",
  "windows_settled", "boundary", "change_continued", "samples_repeated", "prior_shift",
  "features_drifting", "outlier_burst", "outlier_burst_continued", "shadow_alarm", "replay", "class_discovered",
  "labels_matched", "labels_missed", "class_proposed", "proposal_closed", "unknowns_learned",
  "model_published", "version_held", "hold_ended", "model_restored", "entry_rejected",
  "dead_letters_dropped", "entries_lost", "missed",
];
