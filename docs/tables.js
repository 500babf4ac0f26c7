// A table that is wider than its place says so: a shadow at its edge (site.css), and a name for those who do not see it.
function sayThatItScrolls(box) {
  const wide = box.scrollWidth > box.clientWidth + 1
  const above = [...document.querySelectorAll("article :is(h1, h2, h3)")].filter((h) => h.compareDocumentPosition(box) & 4)
  const name = `Table: ${above.at(-1)?.firstChild?.textContent?.trim()}. Scrolls sideways.`
  for (const [key, value] of Object.entries({ role: "region", tabindex: "0", "aria-label": name }))
    wide ? box.setAttribute(key, value) : box.removeAttribute(key)
}
const boxes = new ResizeObserver((entries) => entries.forEach((entry) => sayThatItScrolls(entry.target)))
document$.subscribe(() => document.querySelectorAll(".md-typeset__scrollwrap").forEach((box) => boxes.observe(box)))
