// What is wrong with a page at the width of the window: a sentence for each fault.
() => {
  const SMALLEST_LETTERS = 8; // pixels, in figures; text of the page has 12
  const width = document.documentElement.clientWidth;
  const faults = [];
  const told = (element) => `${element.tagName} ${(element.textContent || "").trim().slice(0, 60)}`;
  const page = document.documentElement.scrollWidth;
  if (page > width) faults.push(`the page is ${page} wide in a window of ${width}`);
  const shown = (element) => element.checkVisibility() && element.getBoundingClientRect().width > 0;

  for (const element of document.querySelectorAll("main *")) {
    if (!shown(element) || element.closest("svg svg, svg *")) continue;
    const style = getComputedStyle(element);
    const scrolls = ["auto", "scroll"].includes(style.overflowX);
    if (!scrolls && style.overflowX !== "visible" && element.scrollWidth > element.clientWidth + 1 &&
        element.tagName !== "svg") faults.push(`cut: ${told(element)}`);
    const words = [...element.childNodes].filter((node) => node.nodeType === 3 && node.data.trim());
    if (!element.parentElement.closest(".scroll, pre") && element.tagName !== "PRE") {
      const boxes = [element.getBoundingClientRect()];
      for (const text of words) { // letters may stand out of their own box
        const range = document.createRange();
        range.selectNodeContents(text);
        boxes.push(range.getBoundingClientRect());
      }
      if (boxes.some((box) => box.left < -1 || box.right > width + 1))
        faults.push(`outside the window: ${told(element)}`);
    }
    if (words.length && parseFloat(style.fontSize) < 12) faults.push(`small letters: ${told(element)}`);
  }

  for (const figure of document.querySelectorAll("svg")) {
    if (!shown(figure)) continue;
    const frame = figure.getBoundingClientRect();
    for (const text of figure.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      const beyond = Math.max(frame.left - box.left, box.right - frame.right,
                              frame.top - box.top, box.bottom - frame.bottom);
      if (beyond > 2) faults.push(`cut by ${beyond.toFixed(0)} in a figure: ${told(text)}`);
      const matrix = text.getScreenCTM();
      const size = parseFloat(getComputedStyle(text).fontSize) * Math.hypot(matrix.a, matrix.b);
      if (size < SMALLEST_LETTERS) faults.push(`letters of ${size.toFixed(1)} in a figure: ${told(text)}`);
    }
  }
  return faults;
}
