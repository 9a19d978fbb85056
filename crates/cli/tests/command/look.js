// Finds texts that overlap or leave their card, bars without colour or beyond their track, and a page
// that is wider than its window. Tells its verdict to the page around.
(() => {
  const wrong = [];
  document.querySelectorAll('details').forEach((details) => { details.open = true; });

  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) {
    wrong.push(`the page is ${page.scrollWidth} wide in a window of ${page.clientWidth}`);
  }

  const boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.textContent.trim();
    if (!text || node.parentElement.closest('script, style')) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const rect of range.getClientRects()) {
      if (rect.width < 1 || rect.height < 1) continue;
      boxes.push({ text, node, rect, card: node.parentElement.closest('figure, .big-card, .scroll, pre') });
    }
  }

  const meet = (a, b) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1.5;
  const sorted = [...boxes].sort((a, b) => a.rect.top - b.rect.top);
  sorted.forEach((a, at) => {
    for (let next = at + 1; next < sorted.length && sorted[next].rect.top < a.rect.bottom; next++) {
      const b = sorted[next];
      const scrolled = (a.card || b.card) && (a.card || b.card).matches('.scroll') && a.card !== b.card;
      if (a.node !== b.node && !scrolled && meet(a.rect, b.rect)) wrong.push(`"${a.text}" on "${b.text}"`);
    }
  });
  for (const { text, rect, card } of boxes) {
    if (!card || card.matches('.scroll')) continue;
    const room = card.getBoundingClientRect();
    if (rect.left < room.left || rect.right > room.right + 0.5 || rect.bottom > room.bottom + 0.5) {
      wrong.push(`"${text}" leaves its card`);
    }
  }

  const colourless = (colour) => colour === 'rgba(0, 0, 0, 0)' || colour === 'rgb(0, 0, 0)';
  const bars = document.querySelectorAll('.fill');
  for (const bar of bars) {
    const style = getComputedStyle(bar);
    const painted = !colourless(style.backgroundColor) || style.backgroundImage.includes('rgb');
    if (!painted) wrong.push(`a bar without colour: ${bar.parentElement.parentElement.innerText}`);
    const [own, track] = [bar, bar.parentElement].map((element) => element.getBoundingClientRect());
    if (own.width < 1 || own.height < 4 || own.right > track.right + 2.5) {
      wrong.push(`a bar beyond its track: ${bar.parentElement.parentElement.innerText}`);
    }
  }
  for (const mark of document.querySelectorAll('.mark')) {
    if (colourless(getComputedStyle(mark).fill)) wrong.push(`a mark without colour: ${mark.outerHTML}`);
  }
  for (const line of document.querySelectorAll('polyline')) {
    if (getComputedStyle(line).stroke === 'none') wrong.push('a line without colour');
  }
  for (const name of document.querySelectorAll('.line-name')) {
    if (name.scrollWidth > name.clientWidth) wrong.push(`"${name.innerText}" is cut off`);
  }

  const light = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  // `color(srgb 1 0.5 0)` of a mixture, `rgb(255, 128, 0)` of a colour.
  const parts = (colour) => {
    const figures = colour.match(/[\d.]+/g).map(Number);
    return colour.startsWith('rgb') ? figures.map((part) => part / 255) : figures;
  };
  const tints = new Set();
  for (const cell of document.querySelectorAll('.tinted')) {
    const style = getComputedStyle(cell);
    tints.add(style.backgroundColor);
    if (colourless(style.backgroundColor)) { wrong.push(`"${cell.innerText}" is not tinted`); continue; }
    const [a, b] = [style.color, style.backgroundColor].map((colour) => luminance(parts(colour)));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) wrong.push(`"${cell.innerText}" is hard to read: ${contrast.toFixed(2)}`);
  }

  // The page is in a frame, since a window has a least width that is more than a phone's.
  const verdict = JSON.stringify({
    width: innerWidth,
    dark: matchMedia('(prefers-color-scheme: dark)').matches,
    texts: boxes.length,
    bars: bars.length,
    lines: document.querySelectorAll('polyline').length,
    tints: tints.size,
    wrong,
  });
  parent.postMessage(verdict, '*');
})();
