// Search that forgives a typo, and that works on pages opened from the disk. Loaded before the theme's own scripts.
(() => {
  // A browser starts no worker on a page from the disk, so there the search runs in a hidden frame.
  class Frame extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.inner = /** @type {any} */ (frame.contentWindow)
      this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = new Promise((resolve) => {
        const script = this.inner.document.createElement("script")
        script.src = url
        script.onload = resolve
        this.inner.document.body.appendChild(script)
      })
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
  const fromDisk = location.protocol === "file:"
  const page = /** @type {any} */ (window)
  if (fromDisk) page.IFrameWorker = Frame // the theme looks for it before it asks for the index
  const Searcher = fromDisk ? Frame : Worker
  const SETUP = 0, QUERY = 2, ANSWER = 3 // the theme's kinds of messages

  // How many letters are wrong: one put in, left out, changed, or swapped with its neighbour.
  function wrongLetters(a, b) {
    const d = [...a, ""].map((_, i) => [...b, ""].map((_, j) => i || j)) // between the first i letters and the first j
    for (let i = 1; i <= a.length; i++)
      for (let j = 1; j <= b.length; j++) {
        d[i][j] = Math.min(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + +(a[i - 1] !== b[j - 1]))
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) d[i][j] = Math.min(d[i][j], d[i - 2][j - 2] + 1)
      }
    return d[a.length][b.length]
  }

  page.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.pages = /** @type {any} */ (null)
      this.words = /** @type {Set<string> | null} */ (null)
      this.waiting = /** @type {any[]} */ ([]) // queries that are not answered yet
      this.inner = new Searcher(url)
      this.inner.addEventListener("message", (/** @type {any} */ { data }) => this.answer(data))
    }
    postMessage(message) {
      if (message.type === SETUP) this.pages = message.data
      if (message.type === QUERY) this.waiting.push(message)
      this.inner.postMessage(message)
    }
    answer(message) {
      if (message.type === ANSWER) {
        const { data, again } = this.waiting.shift()
        const better = again || this.waiting.length ? data.toLowerCase() : this.corrected(data, message.data.items)
        if (better !== data.toLowerCase()) return this.postMessage({ type: QUERY, data: better, again: true })
      }
      this.dispatchEvent(new MessageEvent("message", { data: message }))
    }
    // The query with a word that no page has replaced by the nearest one that a page has; short words stay as they are.
    corrected(query, items) {
      const found = (word) => items.flat().some((item) => item.terms[word])
      return query.toLowerCase().replace(/[\p{L}\d_]{4,}/gu, (word) => (found(word) ? word : this.nearest(word)))
    }
    nearest(word) {
      const separator = new RegExp(this.pages.config.separator)
      const text = (page) => `${page.title} ${page.text}`.replace(/<[^>]*>/g, " ").toLowerCase()
      this.words ??= new Set(this.pages.docs.flatMap((page) => text(page).split(separator)))
      let [best, least] = [word, word.length < 8 ? 1 : 2]
      for (const other of this.words) {
        if (Math.abs(other.length - word.length) > least) continue
        const wrong = wrongLetters(word, other)
        if (wrong < least || (wrong === least && best === word)) [best, least] = [other, wrong]
      }
      return best
    }
  }
})()
