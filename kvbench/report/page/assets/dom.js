// Elements and text. Text only ever becomes text nodes and attributes: nothing that a model wrote is parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element; on… attributes are listeners, `style` a mapping, false and null leave an attribute out. */
function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [property, text] of Object.entries(value)) node.style.setProperty(property, text);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child != null));
  return node;
}

function note(...text) {
  return h("p", { class: "note" }, text);
}

function button(text, onclick, attributes = {}) {
  return h("button", { type: "button", onclick, ...attributes }, text);
}

/** A labelled select; options are [value, text], `choose` is called with the value. */
function choice(label, options, value, choose) {
  const items = options.map(([key, text]) => h("option", { value: key, selected: key === value }, text));
  return h("label", {}, `${label} `, h("select", { onchange: (event) => choose(event.target.value) }, items));
}

/** A number with `digits` decimals; a dash for null. */
function fixed(value, digits = 3) {
  return value == null ? "–" : value.toFixed(digits);
}

/** A number in its shortest form, whole ones with every digit; text as it is. */
function short(value) {
  const rounded = typeof value === "number" && !Number.isInteger(value);
  return value == null ? "–" : String(rounded ? +value.toPrecision(6) : value);
}

function percent(share) {
  return `${+(share * 100).toFixed(1)}\u00a0%`;
}

function mean(values) {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}

/** The JSON in the script element of this id, parsed once. */
const parsed = new Map();
function data(id) {
  if (!parsed.has(id)) parsed.set(id, JSON.parse(document.getElementById(id).textContent));
  return parsed.get(id);
}

/** A function that calls `run` once it has not been called for a moment, so that typing stays fluent. */
function later(run, milliseconds = 120) {
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(run, milliseconds);
  };
}
