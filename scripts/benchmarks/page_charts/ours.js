// The charts as the page draws them: kvbench/report/page/assets/drawing.js is inlined before this.
function drawAll() {
  return DATA.charts.map(({ x, dotted }) => {
    const holder = document.body.appendChild(h("div"));
    const draw = (width) => {
      holder.style.width = `${width}px`;
      holder.replaceChildren(plot(DATA.points, x, "score", width, () => {}, dotted, [[x, x]]));
    };
    return draw;
  });
}
