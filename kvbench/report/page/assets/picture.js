// A chart as an SVG file of its own, in light colours: what is seen of a part of the page, placed as it is seen.

const DRAWN = "fill fill-opacity stroke stroke-width stroke-dasharray stroke-opacity opacity paint-order text-anchor".split(" ");
const WRITTEN = "font-family font-size font-style font-weight".split(" ");
const FILLED = "svg, canvas, li, td, th, caption, h4, p, pre, figcaption"; // elements as large as their content
const MARGIN = 12; // pixels around the picture

/** A button that saves `node`, as it is drawn at that moment, as name.svg. */
function pictureButton(node, name) {
  const file = `${name.replaceAll(/[^\w.-]+/g, "-")}.svg`;
  return button("SVG", () => save(pictureOf(node), file, "image/svg+xml"), { class: "save", title: `this picture as ${file}` });
}

/** The text of an SVG file with all that is visible in `node`: drawings, canvases, coloured boxes and text. */
function pictureOf(node) {
  return inLight(() => {
    const frame = node.getBoundingClientRect();
    const at = ({ left, top }) => ({ x: left - frame.left + MARGIN, y: top - frame.top + MARGIN });
    // no wider than what is drawn; what a reader would have to scroll to is in the picture
    const boxes = [...node.querySelectorAll(FILLED)].map((element) => element.getBoundingClientRect());
    const end = (side) => boxes.reduce((most, box) => Math.max(most, box[side]), 0);
    const [width, height] = [end("right") - frame.left + 2 * MARGIN, end("bottom") - frame.top + 2 * MARGIN];
    const about = svg("title", {}, document.getElementById("caption").textContent);
    const paper = svg("rect", { width, height, fill: "#ffffff" });
    const whole = svg("svg", { xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}` }, about, paper, pictured(node, at));
    return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(whole)}\n`;
  });
}

/** What `draw` returns while the page has its light colours. */
function inLight(draw) {
  const root = document.documentElement;
  const chosen = root.dataset.theme;
  theme("light");
  try {
    return draw();
  } finally {
    theme(chosen);
  }
}

/** SVG elements for an element and all in it; none for what cannot be seen, and for controls. */
function pictured(node, at) {
  if (node.nodeType === Node.TEXT_NODE) return written(node, at);
  if (node.nodeType !== Node.ELEMENT_NODE || node.matches("button, input, select")) return [];
  const style = getComputedStyle(node);
  const box = node.getBoundingClientRect();
  if (style.display === "none" || style.visibility === "hidden" || !box.width) return [];
  if (node instanceof SVGSVGElement) return [drawing(node, { ...at(box), width: box.width, height: box.height })];
  const place = { ...at(box), width: box.width, height: box.height };
  const filled = /^rgba\(.*, 0\)$|^transparent$/.test(style.backgroundColor)
    ? []
    : [svg("rect", { ...place, fill: inSRGB(style.backgroundColor) })];
  if (node instanceof HTMLCanvasElement) {
    const pixels = svg("image", { ...place, preserveAspectRatio: "none", href: enlarged(node, box) });
    return [...filled, pixels, svg("rect", { ...place, fill: "none", stroke: "#888888" })];
  }
  return [...filled, ...[...node.childNodes].flatMap((child) => pictured(child, at))];
}

/** A canvas as large as it is seen, as a data URL: programs smooth an image of few pixels. */
function enlarged(canvas, { width, height }) {
  const large = h("canvas", { width: Math.round(2 * width), height: Math.round(2 * height) });
  const context = large.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, 0, 0, large.width, large.height);
  return large.toDataURL();
}

/** A copy of a drawing whose style stands in its elements; without what is hidden, and what only a page needs. */
function drawing(node, place) {
  const copy = styled(node);
  for (const [name, value] of Object.entries(place)) copy.setAttribute(name, value);
  return copy;
}

function styled(node) {
  const copy = node.cloneNode(false);
  if (node.nodeType !== Node.ELEMENT_NODE) return copy;
  const style = getComputedStyle(node);
  for (const { name } of [...copy.attributes]) if (/^(class|style|tabindex|role|aria-.*)$/.test(name)) copy.removeAttribute(name);
  for (const name of DRAWN) copy.setAttribute(name, /^(fill|stroke)$/.test(name) ? inSRGB(style.getPropertyValue(name)) : style.getPropertyValue(name));
  if (node.tagName === "text") for (const name of WRITTEN) copy.setAttribute(name, style.getPropertyValue(name));
  const seen = [...node.childNodes].filter((child) => child.nodeType !== Node.ELEMENT_NODE || getComputedStyle(child).visibility !== "hidden");
  copy.append(...seen.map(styled));
  return copy;
}

/** The lines of a text node as they are broken on the page. */
function written(node, at) {
  const style = getComputedStyle(node.parentElement);
  const range = document.createRange();
  const lines = new Map();
  for (const { 0: word, index } of node.data.matchAll(/\S+/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    const line = lines.get(box.top) ?? { box, words: [] };
    line.words.push(word);
    lines.set(box.top, line);
  }
  return [...lines.values()].map(({ box, words }) => {
    const { x, y } = at(box);
    const font = Object.fromEntries(WRITTEN.map((name) => [name, style.getPropertyValue(name)]));
    // text stands on its baseline, about a fifth of the line's height above its lower edge
    return svg("text", { x, y: y + box.height * 0.79, fill: inSRGB(style.color), ...font }, words.join(" "));
  });
}

/** A computed colour as every program reads it; `color-mix` computes to a colour space that few know. */
function inSRGB(colour) {
  if (!/^(oklab|oklch|lab|lch|color)\(/.test(colour)) return colour;
  const pixel = h("canvas", { width: 1, height: 1 }).getContext("2d");
  pixel.fillStyle = colour;
  pixel.fillRect(0, 0, 1, 1);
  return `rgb(${[...pixel.getImageData(0, 0, 1, 1).data].slice(0, 3).join(", ")})`;
}
