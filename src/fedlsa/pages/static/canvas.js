/* Lines, discs and words on canvases. A classic script with one global, FedLSACanvas; it needs axes.js. */
"use strict";

/** @typedef {CanvasRenderingContext2D} Brush */
/** @typedef {(Point | null | undefined)[]} Points null: a gap */

var FedLSACanvas = (() => {
  const {SMALL, finite} = FedLSAAxes;
  /** @param {unknown} p @returns {p is Point} */
  const isPoint = p => Array.isArray(p) && finite(p[0]) && finite(p[1]);
  /** @param {Point | null | undefined} p @param {Point} q */
  const distance = (p, q) => isPoint(p) ? Math.hypot(p[0] - q[0], p[1] - q[1]) : Infinity;
  /** @param {Point} p @param {Point} q @param {number} s @returns {Point} */
  const between = (p, q, s) => isPoint(p) && isPoint(q) ? [p[0] + s * (q[0] - p[0]), p[1] + s * (q[1] - p[1])] : [NaN, NaN];

  const FAR = 1e5;  // pixels: a brush loses its way beyond them
  /** Straight lines through points; what lies far off is drawn as far as it can be seen.
      @param {Brush} g @param {Points} points @param {string} style @param {number} width @param {number} [alpha]
      @param {number[]} [dash] */
  function line(g, points, style, width, alpha = 1, dash = []) {
    g.beginPath();
    let down = false, away = false;
    for (const p of points) {
      const there = isPoint(p), far = there ? Math.max(1, Math.abs(p[0]) / FAR, Math.abs(p[1]) / FAR) : 1;
      if (there) g[down && !(away && far > 1) ? "lineTo" : "moveTo"](p[0] / far, p[1] / far);
      [down, away] = [there, far > 1];
    }
    Object.assign(g, {strokeStyle: style, lineWidth: width, globalAlpha: alpha}).setLineDash(dash);
    g.stroke();
    g.globalAlpha = 1;
    if (dash.length) g.setLineDash([]);
  }
  /** @param {Brush} g @param {Points} points @param {number} r @param {string | null} fill @param {string} [edge]
      @param {number} [width] */
  function discs(g, points, r, fill, edge, width = 2) {
    g.beginPath();
    for (const [x, y] of points.filter(isPoint)) {
      g.moveTo(x + r, y);
      g.arc(x, y, r, 0, 2 * Math.PI);
    }
    if (fill) { g.fillStyle = fill; g.fill(); }
    if (edge) { g.strokeStyle = edge; g.lineWidth = width; g.stroke(); }
  }
  /** @param {Brush} g @param {Point[]} points @param {string} style @param {number} alpha */
  function area(g, points, style, alpha) {
    g.beginPath();
    for (const p of points) g.lineTo(...p);
    Object.assign(g, {fillStyle: style, globalAlpha: alpha}).fill();
    g.globalAlpha = 1;
  }
  /** @param {Brush} g @param {[number, number, number, number]} box @param {() => void} draw */
  function within(g, box, draw) { g.save(); g.beginPath(); g.rect(...box); g.clip(); draw(); g.restore(); }

  /** Words with a rim of the paper's colour. @param {Brush} g @param {string} words @param {number} x @param {number} y
      @param {string} style @param {string} paper @param {string} [font] @param {CanvasTextAlign} [align] */
  function text(g, words, x, y, style, paper, font = SMALL, align = "left") {
    Object.assign(g, {font, textAlign: align, fillStyle: style, strokeStyle: paper, lineWidth: 4});
    g.strokeText(words, x, y);
    g.fillText(words, x, y);
  }

  /** Canvases above each other, of which the first stands still and always has all pixels of the screen.
      @param {HTMLCanvasElement[]} canvases */
  function layers(canvases) {
    const ratios = canvases.map(() => 1);
    let ready = false;
    return {
      /** Whether there is something to draw on. */
      get ready() { return ready; },
      /** @param {boolean} crisp */
      resize(crisp) {
        canvases.forEach((canvas, i) => {
          const {clientWidth, clientHeight} = canvas, ratio = crisp || i === 0 ? devicePixelRatio : 1;
          const [w, h] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)];
          if (w && (canvas.width !== w || canvas.height !== h)) [canvas.width, canvas.height] = [w, h];
          [ratios[i], ready] = [ratio, ready || w > 0];
        });
      },
      /** A brush, and the width and height of its paper. @param {number} i @param {boolean} [clear]
          @returns {[Brush, number, number]} */
      brush(i, clear = true) {
        const g = /** @type {Brush} */ (canvases[i].getContext("2d")), ratio = ratios[i];
        const [W, H] = [canvases[i].width / ratio, canvases[i].height / ratio];
        g.setTransform(ratio, 0, 0, ratio, 0, 0);
        if (clear) g.clearRect(0, 0, W, H);
        return [Object.assign(g, {lineJoin: "round", lineCap: "round", textBaseline: "middle"}), W, H];
      },
    };
  }
  /** Where an event is in an element. @param {Element} element @param {MouseEvent} e @returns {Point} */
  function inside(element, e) {
    const r = element.getBoundingClientRect();
    return [e.clientX - r.left, e.clientY - r.top];
  }

  return {area, between, discs, distance, inside, isPoint, layers, line, text, within};
})();
