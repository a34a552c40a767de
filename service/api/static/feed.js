// Server-sent events, from where the history that was read ends.

const RETRY_MS = 2000;
const LONGEST_MS = 60_000;
const STEADY_MS = 30_000; // a connection that stood so long was none of the kind that breaks at once
const SHORT_MS = 60_000; // of what came in so short a time, events are fewer than the history's points

/**
 * Follows GET /events from where the history ends. After a break nothing is resumed here: another
 * model may answer by now, so that all has to be asked for again.
 */
export class Feed {
  /**
   * @param {(kind: string, event: any, id: string) => void} heard
   * @param {(live: boolean) => void} changed whether the connection stands
   * @param {() => void} broke called a while after a break, and after a long time out of sight
   */
  constructor(heard, changed, broke) {
    this.heard = heard;
    this.changed = changed;
    this.broke = broke;
    this.last = "0";
    /** @type {EventSource | null} */
    this.source = null;
    this.broken = true; // until there is a history to go on from
    this.pause = RETRY_MS;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.retry = undefined;
    let hid = 0;
    // A hidden page keeps no connection: browsers allow only a few to one service.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        hid = performance.now();
        this.stop();
      } else if (this.broken || performance.now() - hid > SHORT_MS) this.broke();
      else this.open();
    });
  }

  /** @param {string} after id of the last event that is known */
  follow(after) {
    this.last = after;
    this.broken = false;
    this.stop();
    if (!document.hidden) this.open();
  }

  open() {
    if (this.source) return;
    const source = (this.source = new EventSource(`events?after=${this.last}`));
    let opened = Infinity;
    source.onopen = () => {
      opened = performance.now();
      this.changed(true);
    };
    source.onerror = () => {
      if (this.source !== source) return;
      this.changed(false);
      this.stop();
      this.broken = true;
      if (performance.now() - opened > STEADY_MS) this.pause = RETRY_MS;
      this.retry = setTimeout(() => document.hidden || this.broke(), this.pause);
      this.pause = Math.min(LONGEST_MS, 2 * this.pause);
    };
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => {
        if (event.lastEventId) this.last = event.lastEventId;
        this.heard(kind, JSON.parse(event.data), event.lastEventId);
      });
    }
  }

  stop() {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
  }
}

const KINDS = [
  "batch_learned", "batch_set_aside", "batch_passed", "mode_changed", "change_detected",
  "labels_held", "ert_changed", "set_aside_released", "windows_settled", "boundary",
  "change_continued", "samples_repeated", "prior_shift", "features_drifting", "outlier_burst",
  "outlier_burst_continued", "shadow_alarm",
  "replay", "class_discovered", "labels_matched", "labels_missed", "class_proposed",
  "proposal_closed", "unknowns_learned", "model_published", "version_held", "hold_ended",
  "model_restored", "entry_rejected", "dead_letters_dropped", "missed",
];
