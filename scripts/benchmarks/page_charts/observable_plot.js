// The same charts with Observable Plot: Lib is its bundle.
const SYMBOLS = ["circle", "square", "triangle", "diamond", "times", "plus", "star", "wye"];

function drawAll() {
  const front = pareto(DATA.points.map((point) => ({ point, x: point.r_bytes, y: point.scores.score[0] })), false);
  const rings = [...front].map(({ point }) => point);
  const methods = [...new Set(DATA.points.map(({ method }) => method))];
  const colour = (method) => methodStyle(method).colour;
  const symbol = (method) => SYMBOLS[methods.indexOf(method) % SYMBOLS.length];
  const y = ({ scores }) => scores.score[0];
  const full = DATA.points.filter(({ method }) => method === "full");
  const certain = DATA.points.filter(({ scores }) => scores.score[1] != null);
  return DATA.charts.map(({ x, dotted }) => {
    const holder = document.body.appendChild(h("div"));
    return (width) => {
      holder.style.width = `${width}px`;
      const made = Lib.plot({
        width,
        height: Math.max(280, Math.min(440, width * 0.55)),
        marginLeft: 52,
        marginBottom: 44,
        style: { background: "none", color: "inherit", fontSize: "12px" },
        x: { grid: true, nice: true, zero: true, label: x },
        y: { grid: true, nice: true, label: "score" },
        color: { type: "identity" },
        marks: [
          Lib.ruleY(full, { y, stroke: "var(--quiet)", strokeDasharray: "5 4" }),
          dotted == null ? null : Lib.ruleY([dotted], { stroke: "var(--quiet)", strokeDasharray: "1 3" }),
          Lib.line(DATA.points, { x, y, z: "method", stroke: ({ method }) => colour(method), sort: x }),
          Lib.ruleX(certain, {
            x,
            y1: ({ scores }) => scores.score[1],
            y2: ({ scores }) => scores.score[2],
            stroke: ({ method }) => colour(method),
            strokeOpacity: 0.4,
          }),
          Lib.dot(rings, { x, y, r: 9.5, stroke: "var(--quiet)" }),
          Lib.dot(DATA.points, {
            x,
            y,
            r: 5,
            symbol: ({ method }) => symbol(method),
            fill: ({ method }) => colour(method),
            ariaLabel: "summary",
            tip: true,
            title: "summary",
          }),
        ],
        symbol: { type: "identity" },
      });
      // the keyboard goes through the marks, which Plot leaves out of the order of Tab
      for (const mark of made.querySelectorAll("g[aria-label=dot] path")) {
        mark.setAttribute("tabindex", 0);
        mark.setAttribute("role", "img");
      }
      holder.replaceChildren(made);
    };
  });
}
