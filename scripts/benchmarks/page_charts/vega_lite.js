// The same charts with Vega-Lite: Lib is the bundle of it, Vega and the interpreter that needs no `eval`.
const SHAPES = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-left", "triangle-right"];

function drawAll() {
  const front = pareto(DATA.points.map((point) => ({ point, x: point.r_bytes, y: point.scores.score[0] })), false);
  const rings = new Set([...front].map(({ point }) => point));
  const values = DATA.points.map(({ label, summary, method, title, r_bytes, r, scores: { score } }, i) => {
    const [y, low, high] = score;
    return { label, summary, method, title, r_bytes, r, y, low, high, front: rings.has(DATA.points[i]) };
  });
  const methods = [...new Set(values.map(({ method }) => method))];
  const scale = (range) => ({ domain: methods, range });
  return DATA.charts.map(({ x, dotted }) => {
    const holder = document.body.appendChild(h("div"));
    return (width) => {
      holder.style.width = `${width}px`;
      const across = { field: x, type: "quantitative", title: x, scale: { zero: true, nice: true } };
      const up = { field: "y", type: "quantitative", title: "score", scale: { zero: false, nice: true } };
      const colour = { field: "method", type: "nominal", scale: scale(methods.map((method) => methodStyle(method).colour)), legend: null };
      const shape = { field: "method", type: "nominal", scale: scale(methods.map((_, i) => SHAPES[i % SHAPES.length])), legend: null };
      const only = (filter) => [{ filter }];
      const rule = (dash) => ({ type: "rule", strokeDash: dash, color: "#57606a" });
      const spec = {
        width: width - 68,
        height: Math.max(280, Math.min(440, width * 0.55)) - 56,
        background: null,
        data: { values },
        layer: [
          { transform: only("datum.method === 'full'"), mark: rule([5, 4]), encoding: { y: up } },
          ...(dotted == null ? [] : [{ mark: rule([1, 3]), encoding: { y: { datum: dotted } } }]),
          { mark: { type: "line", strokeWidth: 1.5 }, encoding: { x: across, y: up, color: colour, order: { field: x } } },
          {
            transform: only("isValid(datum.low)"),
            mark: { type: "rule", opacity: 0.4 },
            encoding: { x: across, y: { ...up, field: "low" }, y2: { field: "high" }, color: colour },
          },
          {
            transform: only("datum.front"),
            mark: { type: "point", size: 280, color: "#57606a" },
            encoding: { x: across, y: up },
          },
          {
            mark: { type: "point", filled: true, size: 80, opacity: 1 },
            encoding: { x: across, y: up, color: colour, shape, description: { field: "summary" }, tooltip: { field: "summary" } },
          },
        ],
      };
      const compiled = Lib.compile(spec).spec;
      const runtime = Lib.parse(compiled, null, { ast: true });
      new Lib.View(runtime, { renderer: "svg", container: holder, expr: Lib.expressionInterpreter }).run();
      for (const mark of holder.querySelectorAll("[aria-roledescription=point]")) mark.setAttribute("tabindex", 0);
    };
  });
}
