// Routes, keys and live changes.

let context = [];
let current = null;
let drawn = 0;

const PAGES = [['overview', '#/', 'Overview'], ['samples', '#/samples', 'Samples'], ['tasks', '#/tasks', 'Tasks'],
  ['best', '#/best', 'Best kernels'], ['suspects', '#/suspects', 'Suspects'], ['held-out', '#/held-out', 'Held out']];
const VIEWS = { '': overview, samples, tasks: tasksView, task: taskView, episode: episodeView, best: gallery, suspects, 'held-out': heldOut };
const PARENTS = { '': 'overview', task: 'tasks', episode: 'samples' };

const KEYS = [['1 – 6', 'overview, samples, tasks, best kernels, suspects, held out'], ['j, k', 'next and previous row; in an episode the next and previous sample'],
  ['Enter', 'open the row'], ['←, →', 'turn before and after'], ['d', 'changes of a kernel, or the whole kernel'], ['t', 'open or close the thinking'],
  ['/', 'filter by task'], ['Esc, u', 'back to the list'], ['?', 'this help']];

const main = h('main', { id: 'main' });
const links = h('nav', null);
const state = h('span', { class: 'state' });
const title = h('a', { href: '#/', class: 'title' });
const notice = h('p', { class: 'notice error', role: 'alert', hidden: '' });
const help = h('dialog', null, h('h3', null, 'Keys'), h('dl', { class: 'pairs' }, KEYS.map(([key, meaning]) => [h('dt', null, key), h('dd', null, meaning)])),
  h('form', { method: 'dialog' }, h('button', null, 'close')));
const theme = h('button', { class: 'link', title: 'light or dark', 'aria-label': 'light or dark', onclick: () => {
  const dark = getComputedStyle(document.documentElement).getPropertyValue('color-scheme').trim() === 'dark' ||
    (!document.documentElement.dataset.theme && matchMedia('(prefers-color-scheme: dark)').matches);
  document.documentElement.dataset.theme = dark ? 'light' : 'dark';
} }, '◐');

function show(error) {
  notice.hidden = !error;
  notice.textContent = error ? visible(error.message || error) : '';
}

function route() {
  const [path, search] = location.hash.replace(/^#\/?/, '').split('?');
  return [path.split('/'), new URLSearchParams(search || '')];
}

async function draw(keepScroll = false) {
  const [parts, query] = route();
  const view = VIEWS[parts[0]] || overview;
  const name = PARENTS[parts[0]] || parts[0];
  const hash = location.hash;
  links.replaceChildren(...PAGES.map(([page, link, label]) => h('a', { href: link, class: page === name ? 'on' : '' }, label)));
  title.textContent = visible(store.run);
  state.textContent = store.state;
  state.className = `state s-${store.state}`;
  document.title = `${visible(store.run)} – kernelrl`;
  drawn = store.version;
  if (parts[0] === 'samples' && current && current.update && current.isConnected) return current.update();
  try {
    const page = await view(parts, query);
    // Another page was chosen while this one was loading.
    if (location.hash !== hash) return undefined;
    const top = keepScroll ? scrollY : 0;
    current = page;
    main.replaceChildren(page);
    scrollTo(0, top);
    if (!LIVE) show(null);
  } catch (error) {
    show(error);
  }
  return undefined;
}

function moveSample(by) {
  const [parts, query] = route();
  const key = `${parts[1] === 'held-out' ? 1 : 0}.${parts[2]}`;
  const turn = Number(query.get('turn') || 0);
  const list = context.length ? context : [...store.records].sort(SORTS.sample);
  const at = list.findIndex((record) => record.key === key && record.turn === turn);
  const next = list[at + by];
  if (next && (at >= 0 || by > 0)) location.hash = episodeLink(next);
}

function moveTurn(by) {
  const [parts, query] = route();
  const turn = Math.max(0, Number(query.get('turn') || 0) + by);
  if (document.getElementById(`turn-${turn}`)) location.hash = `#/episode/${parts[1]}/${parts[2]}?turn=${turn}`;
}

function moveRow(by) {
  if (current.list) return current.list.focusRow(document.activeElement.dataset.at === undefined ? 0 : Number(document.activeElement.dataset.at) + by);
  const rows = [...main.querySelectorAll('a.row')];
  const at = rows.indexOf(document.activeElement);
  const row = rows[at < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, at + by))];
  if (row) { row.focus({ preventScroll: true }); row.scrollIntoView({ block: 'nearest' }); }
  return undefined;
}

let listHash = '#/samples';

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (typing && event.key !== 'Escape') return;
  const inEpisode = route()[0][0] === 'episode';
  const actions = {
    j: () => (inEpisode ? moveSample(1) : moveRow(1)),
    k: () => (inEpisode ? moveSample(-1) : moveRow(-1)),
    ArrowDown: inEpisode ? null : () => moveRow(1),
    ArrowUp: inEpisode ? null : () => moveRow(-1),
    ArrowLeft: inEpisode ? () => moveTurn(-1) : null,
    ArrowRight: inEpisode ? () => moveTurn(1) : null,
    d: () => main.querySelectorAll('.toggle-diff').forEach((button) => button.click()),
    t: () => main.querySelectorAll('.turn > details').forEach((element) => { element.open = !element.open; }),
    '/': () => { const filter = document.getElementById('filter'); if (filter) filter.focus(); else { location.hash = '#/samples'; } },
    Escape: () => { if (typing) event.target.blur(); else if (inEpisode) location.hash = listHash; },
    u: () => { if (inEpisode) location.hash = listHash; },
    '?': () => help.showModal(),
  };
  PAGES.forEach(([, link], i) => { actions[i + 1] = () => { location.hash = link; }; });
  if (help.open && event.key !== '?') return;
  const action = actions[event.key];
  if (action) { event.preventDefault(); action(); }
}

async function poll() {
  try {
    await loadIndex();
    show(null);
    state.textContent = store.state;
    const page = route()[0][0];
    const busy = main.querySelector('details[open]') || /^(INPUT|SELECT)$/.test(document.activeElement.tagName);
    if (store.version !== drawn && page === 'samples' && current.update) { drawn = store.version; current.update(); }
    else if (store.version !== drawn && page !== 'episode' && !busy) await draw(true);
  } catch (error) {
    show(error);
  }
}

let listed = '';

async function listRuns() {
  const found = await request('/api/runs');
  show(null);
  if (JSON.stringify(found) === listed) return;
  listed = JSON.stringify(found);
  document.title = 'runs – kernelrl';
  main.replaceChildren(h('h2', null, 'Runs'), found.length ? h('div', null, found.map((run) =>
    h('a', { class: 'row run', href: `/run/${encoded(run.name)}` }, h('b', { class: 'name' }, run.name), h('span', { class: `state s-${run.state}` }, run.state))))
    : h('p', { class: 'empty' }, 'There are no runs below ./runs.'));
  current = main.firstChild;
}

const REFRESH_MS = 1000;

async function start() {
  document.body.append(h('header', { class: 'top' }, LIVE && RUN ? h('a', { href: '/', class: 'muted' }, '‹ runs') : null, title, state, links, h('span', { class: 'spacer' }),
    h('button', { class: 'link', title: 'keys', onclick: () => help.showModal() }, '?'), theme), notice, main, help);
  document.addEventListener('keydown', key);
  try {
    if (LIVE && !RUN) {
      title.textContent = 'kernelrl';
      await listRuns();
      setInterval(() => { if (!document.hidden) listRuns().catch(show); }, REFRESH_MS);
      document.body.dataset.ready = '1';
      return;
    }
    await loadIndex();
  } catch (error) {
    show(error);
  }
  addEventListener('hashchange', (event) => {
    const before = new URL(event.oldURL).hash;
    if (!before.startsWith('#/episode')) listHash = before || '#/';
    if (!location.hash.startsWith('#/samples')) current = null;
    draw();
  });
  await draw();
  document.body.dataset.ready = '1';
  if (LIVE) setInterval(() => { if (!document.hidden) poll(); }, REFRESH_MS);
}

start();
