// The attempts of a search as a tree: each at the right of the kernel that it continues from.

const STEP_X = 92;
const STEP_Y = 36;
const EDGE = 26;

const isSearch = (records) => records.some((record) => record.parents.length);

// Column (number of kernels before it) and row of each attempt, by its turn.
function treePlaces(records) {
  const children = new Map(records.map((record) => [record.turn, []]));
  const roots = [];
  for (const record of records) {
    const parent = record.parents[record.parents.length - 1];
    (children.get(parent) || roots).push(record.turn);
  }
  const places = new Map();
  let rows = 0;
  // Without recursion: a search may be deep.
  const open = roots.reverse().map((turn) => [turn, 0]);
  while (open.length) {
    const [turn, column] = open.pop();
    const parent = records.find((record) => record.turn === turn).parents.at(-1);
    const above = places.get(parent);
    // A first child continues the row of its parent.
    const row = above && !above.continued ? above.row : rows++;
    if (above) above.continued = true;
    places.set(turn, { column, row, continued: false });
    open.push(...children.get(turn).toReversed().map((child) => [child, column + 1]));
  }
  return { places, rows };
}

function attemptTree(records) {
  const { places, rows } = treePlaces(records);
  const columns = Math.max(...[...places.values()].map((place) => place.column)) + 1;
  const x = (turn) => EDGE + places.get(turn).column * STEP_X;
  const y = (turn) => EDGE + places.get(turn).row * STEP_Y;
  const width = 2 * EDGE + columns * STEP_X;
  const height = EDGE + rows * STEP_Y;
  const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': 'tree of attempts' });
  for (const record of records) {
    record.parents.filter((parent) => places.has(parent)).forEach((parent, i, all) => {
      const middle = (x(parent) + x(record.turn)) / 2;
      const path = `M${x(parent)} ${y(parent)}C${middle} ${y(parent)} ${middle} ${y(record.turn)} ${x(record.turn)} ${y(record.turn)}`;
      picture.append(svg('path', { class: i === all.length - 1 ? 'branch' : 'branch seen', d: path }));
    });
  }
  const top = best(records.filter(isBestCandidate));
  for (const record of records) {
    const node = svg('a', { href: episodeLink(record), class: record === top ? 'attempt top' : 'attempt' },
      svg('title', {}, `attempt ${record.turn}: ${words(record.outcome)}, score ${number(record.score, 3)}`),
      svg('circle', { class: `f-${record.outcome}`, cx: x(record.turn), cy: y(record.turn), r: 7 }),
      svg('text', { class: 'tick', x: x(record.turn), y: y(record.turn) - 12, 'text-anchor': 'middle' },
        record.speedup === null ? record.turn : `${record.turn}: ${times(record.speedup)}`));
    picture.append(node);
  }
  return h('figure', { class: 'tree' }, h('figcaption', null, 'Attempts'),
    h('p', { class: 'muted' }, 'Each attempt is at the right of the kernel that it continues from; thin lines lead to other kernels that its prompt shows. A ring marks the best one.'),
    h('div', { class: 'scroll' }, picture));
}
