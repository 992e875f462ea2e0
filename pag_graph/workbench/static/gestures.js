// Moving around in lanes: by wheel, by dragging, by keys; a click chooses, and the pointer asks what is below it.

import { LEFT } from "./lanes.js";

const NEAR_MS = 80;

// `choose` gets the lane and the box that is clicked, `hover` a lane, a box or null, and where the pointer is.
export function listen(lanes, view, whole, { choose, hover }) {
  const { canvas } = lanes;
  let drag = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      view.place(view.from + ((event.deltaX || event.deltaY) / lanes.width) * view.span, view.span);
    } else view.zoom(event.deltaY > 0 ? 1.3 : 1 / 1.3, lanes.ns(event.offsetX));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.offsetX, from: view.from, span: view.span, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const { offsetX, offsetY } = event;
    if (drag) {
      drag.moved ||= Math.abs(offsetX - drag.x) > 3;
      if (drag.moved) view.place(drag.from - ((offsetX - drag.x) / lanes.width) * drag.span, drag.span);
      return;
    }
    const lane = offsetX < LEFT ? null : lanes.placeAt(offsetY);
    hover(lane, lane === null ? null : lanes.boxAt(lane, lanes.ns(offsetX)), event);
  });
  canvas.addEventListener("pointerup", ({ offsetX, offsetY }) => {
    const clicked = drag && !drag.moved;
    drag = null;
    const lane = clicked && offsetX >= LEFT ? lanes.placeAt(offsetY) : null;
    const box = lane === null ? null : lanes.boxAt(lane, lanes.ns(offsetX));
    if (box === null) return;
    // What stands for several activities is looked at more closely.
    if (lanes.boxes.position[box] < 0) view.zoom(0.1, lanes.ns(offsetX));
    else choose(lane, lanes.boxes.position[box]);
  });
  canvas.addEventListener("pointercancel", () => {
    drag = null;
  });
  canvas.addEventListener("pointerleave", (event) => hover(null, null, event));
  canvas.addEventListener("keydown", (event) => {
    const moves = {
      ArrowLeft: () => view.place(view.from - view.span / 5, view.span), ArrowRight: () => view.place(view.from + view.span / 5, view.span),
      "+": () => view.zoom(1 / 1.5, view.middle), "=": () => view.zoom(1 / 1.5, view.middle), "-": () => view.zoom(1.5, view.middle),
      0: () => view.place(whole.from, whole.to - whole.from),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !moves[event.key]) return;
    moves[event.key]();
    event.preventDefault();
  });
}

// Messages around the pointer, asked for when it rests; `ask` gets a worker's place, an instant, and a width.
export function messagesNear(lanes, view, ask) {
  let waiting = null;
  let asked = 0; // an answer that comes when the pointer is elsewhere already shows nothing
  return (lane, x) => {
    clearTimeout(waiting);
    const own = ++asked;
    if (lane === null) {
      lanes.nearby = [];
      lanes.soon();
      return;
    }
    waiting = setTimeout(async () => {
      const near = await ask(lane, Math.round(lanes.ns(x)), Math.max(Math.round((6 * view.span) / lanes.width), 1)).catch(() => []);
      if (own !== asked) return;
      lanes.nearby = near;
      lanes.soon();
    }, NEAR_MS);
  };
}
