// The data of a run: from blocks of this file (report), or from the server (view).

const LIVE = document.body.dataset.mode === 'view';
const RUN = LIVE ? location.pathname.split('/')[2] || '' : '';
const OUTCOMES = ['correct', 'incorrect', 'compile_error', 'runtime_error', 'timeout', 'out_of_memory', 'hacked',
  'rejected', 'format_error', 'infra_error'];

const store = {
  run: '', state: '', facts: [], records: [], tasks: [], rules: [], metrics: {}, metricsCount: 0,
  position: 0, identity: 0, withoutText: 0, version: 0, verdict: null, charts: [], definitions: {},
};
const places = new Map();
let firstShared = [];
const parsed = new Promise((done) => {
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', done);
  else done();
});

async function unpack(name) {
  const element = document.getElementById(name) || (await parsed, document.getElementById(name));
  const text = atob(element.textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).json();
}

async function request(path) {
  const response = await fetch(path, { cache: 'no-store' });
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return found;
}

const runPath = (rest = '') => `/api/run/${RUN}${rest}`;

function take(found) {
  if (found.complete) Object.assign(store, { records: [], metrics: {} });
  for (const [index, ...values] of found.records) {
    const record = { index };
    found.fields.forEach((name, i) => { record[name] = values[i]; });
    record.key = [record.held_out, record.step, record.task_index, record.episode].join('.');
    store.records[index] = record;
  }
  if (found.tasks) Object.assign(store, { tasks: found.tasks, rules: found.rules });
  const known = found.metrics_count - (Object.values(found.metrics)[0] || []).length;
  for (const [name, values] of Object.entries(found.metrics)) {
    const column = store.metrics[name] || (store.metrics[name] = []);
    while (column.length < known) column.push(null);
    column.push(...values);
  }
  for (const column of Object.values(store.metrics)) while (column.length < found.metrics_count) column.push(null);
  Object.assign(store, {
    run: found.run, state: found.state, facts: found.facts, metricsCount: found.metrics_count,
    position: found.position, identity: found.identity || 0, recipe: found.recipe,
    withoutText: found.without_text || 0, verdict: found.verdict, charts: found.charts,
  });
  Object.assign(store.definitions, found.definitions);
  if (found.records.length || Object.keys(found.metrics).length) store.version += 1;
}

async function loadIndex() {
  if (LIVE) {
    take(await request(`${runPath()}?identity=${store.identity}&after=${store.position}&metrics=${store.metricsCount}`));
    return;
  }
  const found = await unpack('index');
  for (const place of found.places) places.set(place.slice(0, 4).join('.'), place[4]);
  firstShared = found.first_shared;
  take(found);
}

const chunks = new Map();
const KEPT_CHUNKS = 32;

function chunk(position) {
  if (!chunks.has(position)) {
    chunks.set(position, unpack(`chunk-${position}`));
    if (chunks.size > KEPT_CHUNKS) chunks.delete(chunks.keys().next().value);
  }
  return chunks.get(position);
}

async function sharedText(index) {
  let position = firstShared.length - 1;
  while (firstShared[position] > index) position -= 1;
  return (await chunk(position)).shared[index - firstShared[position]];
}

// The turns of an episode, and a function that returns the text of a reference; null if this file does not have them.
async function loadEpisode(key) {
  if (!LIVE && !places.has(key)) return null;
  const found = LIVE ? await request(runPath(`/${key}`)) : (await chunk(places.get(key))).episodes[key];
  const texts = await Promise.all(found.texts.map((text) => (typeof text === 'number' ? sharedText(text) : text)));
  const text = (reference) => {
    if (reference === null || reference === undefined) return '';
    return typeof reference === 'number' ? texts[reference] : texts[reference[0]].slice(reference[1], reference[2]);
  };
  return { turns: found.turns, text };
}

const loadRecipe = async () => (LIVE ? request(runPath('/recipe')) : store.recipe);

const taskName = (record) => store.tasks[record.task][0];
const sampleName = (record) => [record.step, record.task_index, record.episode, record.turn].join('.');
const episodeLink = (record) =>
  `#/episode/${record.held_out ? 'held-out' : 'train'}/${record.key.slice(2)}?turn=${record.turn}`;
const groupKey = (record) => [record.held_out, record.step, record.task_index].join('.');

// Groups of records by a key, in the order of the first record of each.
function grouped(records, keyOf) {
  const groups = new Map();
  for (const record of records) {
    const key = keyOf(record);
    const group = groups.get(key);
    if (group) group.push(record);
    else groups.set(key, [record]);
  }
  return groups;
}

const merit = (record) => (record.speedup || 0) * 1e6 + record.score;
const best = (records) => records.reduce((found, record) => (!found || merit(record) > merit(found) ? record : found), null);
const isBestCandidate = (record) => record.outcome === 'correct' && record.verdict === 'clean' && record.verified !== false;
