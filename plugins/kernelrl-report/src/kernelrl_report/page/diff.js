// The difference of two texts by lines: Myers' algorithm on the lines between the common beginning and end.

const MAX_EDITS = 1500;

function diffLines(before, after) {
  let start = 0;
  let endA = before.length;
  let endB = after.length;
  while (start < endA && start < endB && before[start] === after[start]) start += 1;
  while (endA > start && endB > start && before[endA - 1] === after[endB - 1]) { endA -= 1; endB -= 1; }
  const same = (from, to) => before.slice(from, to).map((line) => [' ', line]);
  return [
    ...same(0, start),
    ...middle(before.slice(start, endA), after.slice(start, endB)),
    ...same(endA, before.length),
  ];
}

function middle(a, b) {
  const replaced = () => [...a.map((line) => ['-', line]), ...b.map((line) => ['+', line])];
  if (!a.length || !b.length) return replaced();
  const trace = [];
  let ends = new Map([[1, 0]]);
  for (let edits = 0; edits <= a.length + b.length; edits++) {
    if (edits > MAX_EDITS) return replaced();
    const next = new Map(ends);
    trace.push(ends);
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && ends.get(k - 1) < ends.get(k + 1));
      let x = down ? ends.get(k + 1) : ends.get(k - 1) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      next.set(k, x);
      if (x >= a.length && x - k >= b.length) return backtrack(trace, a, b);
    }
    ends = next;
  }
  return replaced();
}

function backtrack(trace, a, b) {
  const found = [];
  let x = a.length;
  let y = b.length;
  for (let edits = trace.length - 1; edits >= 0; edits--) {
    const ends = trace[edits];
    const k = x - y;
    const down = k === -edits || (k !== edits && ends.get(k - 1) < ends.get(k + 1));
    const fromK = down ? k + 1 : k - 1;
    const fromX = edits ? ends.get(fromK) : 0;
    const fromY = edits ? fromX - fromK : 0;
    while (x > fromX && y > fromY && x > 0 && y > 0 && a[x - 1] === b[y - 1]) {
      x -= 1; y -= 1;
      found.push([' ', a[x]]);
    }
    if (!edits) break;
    if (down) { y -= 1; found.push(['+', b[y]]); } else { x -= 1; found.push(['-', a[x]]); }
  }
  return found.reverse();
}

const TOKENS = /(#.*|\/\/.*)|("""|'''|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|\b(def|class|return|import|from|as|for|if|else|elif|while|in|not|and|or|with|None|True|False|lambda|self|void|int|float|const|template|typename|auto|__global__|__device__|__shared__|extern)\b|\b(\d[\w.]*)|(@[\w.]+)/g;
const CLASSES = ['', 'c', 's', 'k', 'n', 'd'];
const MAX_LINE = 2000;
const MAX_LINES = 3000;

function codeLine(sign, line, position) {
  const element = h('span', { class: `line ${sign === '+' ? 'add' : sign === '-' ? 'del' : ''}`, 'data-line': position });
  const text = line.slice(0, MAX_LINE);
  let end = 0;
  for (const found of text.matchAll(TOKENS)) {
    const kind = found.findIndex((group, i) => i > 0 && group !== undefined);
    fill(element, [text.slice(end, found.index), h('span', { class: `t-${CLASSES[kind]}` }, found[0])]);
    end = found.index + found[0].length;
  }
  fill(element, [text.slice(end)]);
  if (line.length > MAX_LINE) {
    const rest = h('span', null);
    fill(element, [rest, more(line, MAX_LINE, rest)]);
  }
  return element;
}

const CONTEXT = 3;

// Lines of code with numbers; as a difference, long unchanged parts are folded.
function code(lines, { folded = false } = {}) {
  const body = h('pre', { class: 'code', tabindex: '0' });
  let position = 0;
  const positions = lines.map(([sign]) => (sign === '-' ? '−' : (position += 1)));
  const show = (from, to) => lines.slice(from, to).map(([sign, line], i) => codeLine(sign, line, positions[from + i]));
  const near = new Uint8Array(lines.length);
  lines.forEach(([sign], i) => {
    if (sign !== ' ') near.fill(1, Math.max(0, i - CONTEXT), i + CONTEXT + 1);
  });
  for (let i = 0; i < lines.length;) {
    let end = i;
    while (end < lines.length && near[end] === near[i]) end += 1;
    if (folded && !near[i] && end - i > 4) {
      const [from, to] = [i, end];
      const button = h('button', { class: 'more' }, `${to - from} unchanged lines`);
      button.addEventListener('click', () => button.replaceWith(...show(from, to)));
      body.append(button);
    } else if (end - i > MAX_LINES) {
      const [from, to] = [i + MAX_LINES, end];
      const button = h('button', { class: 'more' }, `${number(to - from)} more lines`);
      button.addEventListener('click', () => button.replaceWith(...show(from, to)));
      body.append(...show(i, from), button);
    } else body.append(...show(i, end));
    i = end;
  }
  return body;
}

const plainLines = (text) => text.replace(/\n$/, '').split('\n').map((line) => [' ', line]);
