// Curves over steps, as SVG. A click on a step opens its samples.

const WIDTH = 360;
const HEIGHT = 150;
const LEFT = 44;
const BOTTOM = 18;
const TOP = 8;

function ticks(low, high) {
  const span = high - low || Math.abs(high) || 1;
  const unit = 10 ** Math.floor(Math.log10(span / 2));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((size) => span / size <= 4.5) || unit * 10;
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-6; tick += step) found.push(tick);
  return found;
}

const short = (value) =>
  Math.abs(value) >= 10000 || (value !== 0 && Math.abs(value) < 0.001)
    ? value.toExponential(0) : number(value, 3);

// series: [{name, values}], one value or null per step.
function chart(title, steps, series, { share = false, set = 'train' } = {}) {
  const values = series.flatMap((one) => one.values).filter((value) => value !== null);
  let low = share ? 0 : Math.min(...values);
  let high = share ? Math.max(0.05, Math.max(...values)) : Math.max(...values);
  if (low === high) { low -= Math.abs(low) / 10 || 1; high += Math.abs(high) / 10 || 1; }
  const first = steps[0];
  const range = Math.max(1, steps[steps.length - 1] - first);
  const x = (step) => LEFT + ((step - first) / range) * (WIDTH - LEFT - 8);
  const y = (value) => TOP + (1 - (value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const picture = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': title });
  for (const tick of ticks(low, high)) {
    picture.append(
      svg('line', { class: 'grid', x1: LEFT, x2: WIDTH - 8, y1: y(tick), y2: y(tick) }),
      svg('text', { class: 'tick', x: LEFT - 6, y: y(tick) + 3.5, 'text-anchor': 'end' }, share ? percent(tick) : short(tick)),
    );
  }
  for (const tick of ticks(first, first + range).filter(Number.isInteger)) {
    picture.append(svg('text', { class: 'tick', x: x(tick), y: HEIGHT - 4, 'text-anchor': 'middle' }, tick));
  }
  series.forEach(({ values: line }, i) => {
    const points = line.map((value, at) => (value === null ? null : [x(steps[at]), y(value)])).filter(Boolean);
    if (points.length > 1) {
      picture.append(svg('path', { class: `curve c${i}`, d: `M${points.map((point) => point.map((v) => v.toFixed(1)).join(' ')).join('L')}` }));
    }
    if (points.length <= 20) {
      for (const [cx, cy] of points) picture.append(svg('circle', { class: `dot c${i}`, cx, cy, r: 2.2 }));
    }
  });
  const cursor = svg('line', { class: 'cursor', y1: TOP, y2: HEIGHT - BOTTOM, visibility: 'hidden' });
  picture.append(cursor);
  const legend = h('div', { class: 'legend' });
  const show = (at) => {
    legend.replaceChildren(...series.map(({ name, values: line }, i) => {
      let position = at === null ? line.length - 1 : at;
      while (at === null && position > 0 && line[position] === null) position -= 1;
      const value = line[position];
      return h('span', { class: `key c${i}` }, series.length > 1 ? `${name} ` : '',
        h('b', null, value === null ? '–' : share ? percent(value) : short(value)));
    }), at === null ? '' : h('span', { class: 'at' }, `step ${steps[at]}`));
  };
  show(null);
  let at = null;
  picture.addEventListener('pointermove', (event) => {
    const box = picture.getBoundingClientRect();
    const step = first + (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - 8) * range;
    at = steps.reduce((near, one, i) => (Math.abs(one - step) < Math.abs(steps[near] - step) ? i : near), 0);
    cursor.setAttribute('x1', x(steps[at]));
    cursor.setAttribute('x2', x(steps[at]));
    cursor.setAttribute('visibility', 'visible');
    show(at);
  });
  picture.addEventListener('pointerleave', () => { cursor.setAttribute('visibility', 'hidden'); show(null); });
  picture.addEventListener('click', () => { if (at !== null) location.hash = `#/samples?set=${set}&step=${steps[at]}`; });
  return h('figure', { class: 'chart' }, h('figcaption', null, h('span', null, title), legend), picture);
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
    h('figcaption', null, h('span', null, 'Outcomes by step'), h('div', { class: 'legend' }, legend)), picture);
}
