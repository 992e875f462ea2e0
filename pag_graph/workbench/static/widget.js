// A widget of a notebook: the page in a frame of its own, which can reach neither the notebook nor anything else.

function render({ model, el }) {
  const frame = document.createElement("iframe");
  const address = URL.createObjectURL(new Blob([model.get("page")], { type: "text/html" }));
  frame.setAttribute("sandbox", "allow-scripts allow-downloads");
  frame.setAttribute("title", "A window of a run: lanes, why, and analyses");
  frame.style.setProperty("width", "100%");
  frame.style.setProperty("height", `${model.get("height")}px`);
  frame.style.setProperty("border", "0");
  frame.src = address;
  el.append(frame);
  return () => URL.revokeObjectURL(address);
}

export default { render };
