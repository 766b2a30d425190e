// Curves over steps, as SVG as wide as its place. A click on a step opens its samples.

const HEIGHT = 190;
const LEFT = 46;
const RIGHT = 10;
const BOTTOM = 34;
const TOP = 22;
const MOST_DOTS = 20;
// Curves differ in their dashes too: colours alone are not enough for everyone.
const DASHES = ['', '7 4', '2 3', '9 3 2 3'];

function ticks(low, high) {
  const span = high - low || Math.abs(high) || 1;
  const unit = 10 ** Math.floor(Math.log10(span / 2));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((size) => span / size <= 4.5) || unit * 10;
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-6; tick += step) found.push(Math.abs(tick) < step / 2 ? 0 : tick);
  return found;
}

const short = (value) =>
  Math.abs(value) >= 10000 || (value !== 0 && Math.abs(value) < 0.001)
    ? value.toExponential(0) : number(value, Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 3);

// Equal curves would hide each other: they are one curve with both names.
function distinct(series) {
  const found = [];
  for (const one of series) {
    const same = found.find((other) => other.values.every((value, at) => value === one.values[at]));
    if (same) same.name = `${same.name} = ${one.name}`;
    else found.push({ ...one });
  }
  return found;
}

function peakOf(values) {
  let at = -1;
  values.forEach((value, i) => { if (value !== null && (at < 0 || value > values[at])) at = i; });
  return at;
}

function lastOf(values) {
  let at = values.length - 1;
  while (at > 0 && values[at] === null) at -= 1;
  return at;
}

const styled = (i) => ({ 'stroke-dasharray': DASHES[i % DASHES.length] });

function curveKey(i) {
  return svg('svg', { class: 'key', viewBox: '0 0 22 8', width: 22, height: 8 },
    svg('path', { class: `curve c${i}`, d: 'M0 4L22 4', ...styled(i) }));
}

// series: [{name, values}], one value or null per step. Options: share, whether values are shares from 0 to 1; unit;
// set, whose samples a click opens; axis, the name of the horizontal axis; about, lines on the metrics.
function chart(title, steps, given, { share = false, unit = '', set = 'train', axis = 'step', about = [] } = {}) {
  const series = distinct(given);
  const values = series.flatMap((one) => one.values).filter((value) => value !== null);
  let low = share ? 0 : Math.min(...values);
  let high = share ? Math.max(0.05, Math.max(...values)) : Math.max(...values);
  if (low === high) { low -= Math.abs(low) / 10 || 1; high += Math.abs(high) / 10 || 1; }
  const first = steps[0];
  const range = Math.max(1, steps[steps.length - 1] - first);
  const text = (value) => (value === null || value === undefined ? '–' : share ? percent(value) : short(value));
  const legend = h('ul', { class: 'legend' });
  const show = (at) => legend.replaceChildren(...series.map(({ name, values: line }, i) => {
    const peak = peakOf(line);
    const facts = at === null
      ? [h('span', null, 'last ', h('b', null, text(line[lastOf(line)]))), h('span', null, 'peak ', h('b', null, text(line[peak])), ` at ${steps[peak]}`)]
      : [h('span', null, `${axis} ${steps[at]} `, h('b', null, text(line[at])))];
    return h('li', null, curveKey(i), h('span', { class: 'curve-name' }, name), facts);
  }));
  show(null);
  const place = h('div', { class: 'picture' });
  let drawn = 0;
  const draw = (width) => {
    drawn = width;
    const x = (step) => LEFT + ((step - first) / range) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - (value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
    const picture = svg('svg', { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: 'img', 'aria-label': title });
    picture.append(
      svg('text', { class: 'tick', x: 0, y: 10 }, share ? `${unit || 'share'} in %` : unit),
      svg('text', { class: 'tick', x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 4, 'text-anchor': 'middle' }, axis));
    for (const tick of ticks(low, high)) {
      picture.append(
        svg('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }),
        svg('text', { class: 'tick', x: LEFT - 6, y: y(tick) + 3.5, 'text-anchor': 'end' }, share ? percent(tick) : short(tick)));
    }
    for (const tick of ticks(first, first + range).filter(Number.isInteger)) {
      picture.append(svg('text', { class: 'tick', x: x(tick), y: HEIGHT - 19, 'text-anchor': 'middle' }, tick));
    }
    series.forEach(({ values: line }, i) => {
      const points = line.map((value, at) => (value === null ? null : [x(steps[at]), y(value)])).filter(Boolean);
      if (points.length > 1) {
        picture.append(svg('path', { class: `curve c${i}`, ...styled(i), d: `M${points.map((point) => point.map((v) => v.toFixed(1)).join(' ')).join('L')}` }));
      }
      if (points.length <= MOST_DOTS) {
        for (const [cx, cy] of points) picture.append(svg('circle', { class: `dot c${i}`, cx, cy, r: 2.2 }));
      }
    });
    const cursor = svg('line', { class: 'cursor', y1: TOP, y2: HEIGHT - BOTTOM, visibility: 'hidden' });
    picture.append(cursor);
    let at = null;
    picture.addEventListener('pointermove', (event) => {
      const step = first + ((event.clientX - picture.getBoundingClientRect().left - LEFT) / (width - LEFT - RIGHT)) * range;
      at = steps.reduce((near, one, i) => (Math.abs(one - step) < Math.abs(steps[near] - step) ? i : near), 0);
      cursor.setAttribute('x1', x(steps[at]));
      cursor.setAttribute('x2', x(steps[at]));
      cursor.setAttribute('visibility', 'visible');
      show(at);
    });
    picture.addEventListener('pointerleave', () => { cursor.setAttribute('visibility', 'hidden'); show(null); });
    picture.addEventListener('click', () => { if (at !== null) location.hash = `#/samples?set=${set}&step=${steps[at]}`; });
    place.replaceChildren(picture);
  };
  new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width > 0 && width !== drawn) draw(width);
  }).observe(place);
  return h('figure', { class: 'chart' }, h('figcaption', null, title), legend, place,
    about.length ? fold('definition', () => h('ul', { class: 'about' }, about.map((line) => h('li', null, line)))) : null);
}

const MAX_BARS = 90;

// Shares of outcomes over the steps, as stacked bars. A click opens the samples of the bar.
function outcomeChart(records) {
  const last = records.reduce((found, record) => Math.max(found, record.step), 0);
  const width = Math.ceil((last + 1) / MAX_BARS);
  const bars = [...grouped(records, (record) => Math.floor(record.step / width))].sort((a, b) => a[0] - b[0]);
  const total = Math.ceil((last + 1) / width);
  const size = 960 / total;
  const picture = svg('svg', { viewBox: '0 0 960 120', preserveAspectRatio: 'none', role: 'img', 'aria-label': 'outcomes' });
  const present = new Set();
  for (const [bar, members] of bars) {
    const counts = grouped(members, (record) => record.outcome);
    const range = width === 1 ? `${bar}` : `${bar * width}-${bar * width + width - 1}`;
    const link = svg('a', { href: `#/samples?set=train&step=${range}` });
    let top = 120;
    const lines = [];
    for (const outcome of OUTCOMES) {
      const count = (counts.get(outcome) || []).length;
      if (!count) continue;
      present.add(outcome);
      const height = (count / members.length) * 120;
      top -= height;
      link.append(svg('rect', { class: `f-${outcome}`, x: bar * size, y: top, width: Math.max(size - Math.min(2, size / 5), 0.5), height }));
      lines.push(`${words(outcome)} ${count}`);
    }
    link.append(svg('title', {}, `step ${range}: ${lines.join(', ')}`));
    picture.append(link);
  }
  const legend = OUTCOMES.filter((outcome) => present.has(outcome)).map((outcome) =>
    h('a', { href: `#/samples?set=train&outcome=${outcome}` }, outcomeMark(outcome)));
  return h('figure', { class: 'outcomes' },
    h('figcaption', null, h('span', null, 'Outcomes of the training samples'), h('div', { class: 'legend' }, legend)), picture,
    h('div', { class: 'axis' }, h('span', null, '0'), h('span', null, 'step'), h('span', null, last)));
}
