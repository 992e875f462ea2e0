// What part of a run is looked at, and how often its server is asked.

const NARROWEST = 20; // nanoseconds

export class View {
  // `limits` says how far it may go, and may grow; `moved` is called when it has changed.
  constructor(limits, { from, to }, moved) {
    Object.assign(this, { limits, from, to, moved });
  }

  get span() {
    return this.to - this.from;
  }

  get middle() {
    return this.from + this.span / 2;
  }

  place(from, span) {
    const { limits } = this;
    this.from = Math.min(Math.max(from, limits.from), Math.max(limits.to - span, limits.from));
    this.to = Math.min(this.from + span, limits.to);
    this.moved();
  }

  zoom(factor, centre) {
    const span = Math.min(Math.max(this.span * factor, NARROWEST), this.limits.to - this.limits.from);
    this.place(centre - (span * (centre - this.from)) / this.span, span);
  }
}

// Does something at once, and while it is being done, once more after it however often it is asked for: the last view
// is always shown, and none is asked for that is gone already.
export function latest(work) {
  let [busy, again] = [false, false];
  return async () => {
    again = true;
    if (busy) return;
    busy = true;
    try {
      while (again) {
        again = false;
        await work();
      }
    } finally {
      busy = false;
    }
  };
}

// Does something when it has not been asked for during so many milliseconds.
export function settled(work, ms) {
  let waiting = null;
  return () => {
    clearTimeout(waiting);
    waiting = setTimeout(work, ms);
  };
}
