"""What of a page in a browser is hard to read."""

# text below 12 pixels, but for indices in formulas; and below a contrast of 4.5 with what lies under it (WCAG AA)
ILLEGIBLE = """() => {
  const rgb = c => c.match(/[\\d.]+/g).map(Number);
  const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => [r, g, b].map(v => linear(v / 255))
    .reduce((sum, v, k) => sum + v * [.2126, .7152, .0722][k], 0);
  const under = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  const out = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || !e.checkVisibility()) continue;
    const style = getComputedStyle(e), ink = rgb(e instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(ink), light(under(e))].sort((x, y) => y - x), contrast = (a + .05) / (b + .05);
    const small = parseFloat(style.fontSize) < 12 && !e.closest('math, sub, sup');
    if (small || contrast < 4.5) out.push([e.tagName, e.textContent.slice(0, 30), style.fontSize, contrast]);
  }
  return out;
}"""


def illegible(page) -> list[list]:
    """Texts that are too small or too pale: element, words, size, contrast."""
    return page.evaluate(ILLEGIBLE)
