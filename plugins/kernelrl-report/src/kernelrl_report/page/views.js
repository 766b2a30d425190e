// The pages of a run: overview, samples, tasks, held-out evaluations, best kernels, suspects.

const HELD_OUT_CHART = 'Held-out tasks';

function about(names) {
  return names.filter((name) => store.definitions[name]).map((name) => {
    const [meaning, formula, unit, good] = store.definitions[name];
    return `${name}: ${meaning}. Formula: ${formula}. Unit: ${unit}. Good: ${good}.`;
  });
}

function curves({ title, curves: named, share, unit }) {
  // A finding is absent from the steps without it.
  const valuesOf = (name) => (name.startsWith('finding/') ? store.metrics[name].map((value) => value ?? 0) : store.metrics[name]);
  const series = named.map(([label, name]) => ({ name: label, values: valuesOf(name) }));
  return chart(title, store.metrics.step, series, { share, unit, about: about(named.map(([, name]) => name)) });
}

const drawChart = (one) => (one.title === HELD_OUT_CHART ? heldOutCurve() : curves(one));

// A metric that the user has chosen.
function chosenCurve(name) {
  const [, , unit] = store.definitions[name] || ['', '', ''];
  return curves({ title: name, curves: [[name, name]], share: unit === 'share', unit });
}

// Held-out evaluations are between the steps: the first is before training.
function heldOutCurve() {
  const evaluations = [...grouped(store.records.filter((record) => record.held_out), (record) => record.step)].sort((a, b) => a[0] - b[0]);
  const line = (name, chosen) => ({ name, values: evaluations.map(([, members]) => solvedShare(members.filter(chosen))) });
  const series = [line('correct', () => true)];
  if (evaluations.some(([, members]) => members.some((record) => record.turn))) series.push(line('first turn', (record) => record.turn === 0));
  const options = { share: true, unit: 'episodes with a correct turn', set: 'held-out', axis: 'updates before the evaluation', about: about(['eval/pass@1']) };
  return evaluations.length ? chart(HELD_OUT_CHART, evaluations.map(([step]) => step), series, options) : null;
}

function overview(parts, query) {
  const train = store.records.filter((record) => !record.held_out);
  const searches = [...grouped(store.records, (record) => record.key).values()].filter(isSearch);
  const extra = (query.get('m') || '').split(',').filter((name) => store.metrics[name]);
  const good = bestKernels();
  const reviews = reviewed();
  const repaired = [...grouped(store.records, (record) => record.key).values()]
    .filter((turns) => turns.length > 1 && turns.some((one) => one.turn === 0 && one.outcome !== 'correct') && turns.some(isBestCandidate))
    .map((turns) => best(turns.filter(isBestCandidate))).sort((a, b) => merit(b) - merit(a));
  const card = (title, link, count, note, members) => count > 0 && h('section', { class: 'card' },
    h('h3', null, h('a', { href: link }, title), h('b', null, number(count))), h('p', { class: 'muted' }, note),
    h('ul', null, members.slice(0, 3).map((record) => h('li', null, h('a', { class: 'row', href: episodeLink(record) },
      outcomeMark(record.outcome), h('span', { class: 'name' }, taskName(record)),
      h('b', null, record.speedup === null ? number(record.score) : times(record.speedup)))))));
  const add = h('input', { type: 'search', list: 'metric-names', placeholder: 'add a metric …', 'aria-label': 'add a metric',
    onchange: (event) => { if (store.metrics[event.target.value]) location.hash = `#/?m=${encoded([...extra, event.target.value].join(','))}`; } });
  const changed = store.charts.filter((one) => one.changed);
  const flat = store.charts.filter((one) => !one.changed);
  const held = !store.charts.some((one) => one.title === HELD_OUT_CHART) && heldOutCurve();
  return h('div', null, store.metricsCount || !searches.length ? verdictView() : null, searches.slice(0, 4).map(attemptTree),
    store.withoutText ? h('p', { class: 'notice' }, `${number(store.withoutText)} of ${plural(store.records.length, 'sample')} are listed without their texts (--max-mb).`) : null,
    store.records.length ? null : h('p', { class: 'empty' }, 'This run has no samples yet.'),
    train.length ? outcomeChart(train) : null,
    h('div', { class: 'charts' }, extra.map(chosenCurve), changed.map(drawChart), held),
    flat.length ? fold(`${plural(flat.length, 'chart')} without a change: ${flat.map((one) => one.title).join(', ')}`,
      () => h('div', { class: 'charts' }, flat.map(drawChart)), !changed.length) : null,
    store.metricsCount ? h('p', null, add, h('datalist', { id: 'metric-names' }, Object.keys(store.metrics).map((name) => h('option', { value: name })))) : null,
    h('div', { class: 'cards' },
      card('Best kernels', '#/best', good.length, 'the best correct and clean kernel of each task', good),
      card('Repaired by feedback', '#/samples?repaired=1', repaired.length, 'episodes whose first turn failed and a later one is correct', repaired),
      card('Suspects', '#/suspects', reviews.length, 'samples that a person should review', reviews)),
    h('section', null, h('h3', null, 'Facts'),
      h('dl', { class: 'facts' }, store.facts.map(([name, value]) => h('div', null, h('dt', null, name.startsWith(' ') ? `time: ${name.trim()}` : name), h('dd', null, value.replaceAll('->', '→')))))),
    fold('Recipe', () => {
      const body = h('div', null);
      loadRecipe().then((text) => body.append(code(plainLines(text || ''))));
      return body;
    }));
}

// The headline, and what rose, what fell and what to look at.
function verdictView() {
  const { headline, tone, rose, fell, look } = store.verdict;
  const changes = (title, sign, list) => list.length > 0 && h('section', null, h('h3', null, title),
    h('ul', null, list.map(([text, good]) => h('li', { class: good > 0 ? 'better' : good < 0 ? 'worse' : '' }, `${sign} ${text}`))));
  return h('section', { class: `verdict-of-run t-${tone}` }, h('h1', null, headline),
    h('div', { class: 'columns' }, changes('What rose', '↑', rose), changes('What fell', '↓', fell),
      look.length > 0 && h('section', null, h('h3', null, 'What to look at'),
        h('ul', null, look.map(({ text, link }) => h('li', null, link ? h('a', { href: link }, text) : text))))));
}

function bestKernels() {
  return [...grouped(store.records.filter(isBestCandidate), (record) => record.task).values()]
    .map(best).sort((a, b) => merit(b) - merit(a));
}

const reviewed = () => store.records.filter((record) => record.evidence !== null);

// Filters. Their state is the fragment, so every selection is a link.

const SORTS = {
  sample: (a, b) => a.held_out - b.held_out || a.step - b.step || a.task_index - b.task_index || a.episode - b.episode || a.turn - b.turn,
  score: (a, b) => b.score - a.score,
  speedup: (a, b) => (b.speedup || 0) - (a.speedup || 0),
  advantage: (a, b) => (b.advantage ?? -Infinity) - (a.advantage ?? -Infinity),
  tokens: (a, b) => b.tokens - a.tokens,
};

function selected(query) {
  const set = query.get('set');
  const outcomes = new Set((query.get('outcome') || '').split(',').filter(Boolean));
  const task = (query.get('task') || '').toLowerCase();
  const tasks = task && new Set(store.tasks.flatMap(([name], i) => (name.toLowerCase().includes(task) ? [i] : [])));
  const rule = query.get('rule') ? store.rules.indexOf(query.get('rule')) : null;
  const turn = query.get('turn') ? Number(query.get('turn')) : null;
  const [from, to] = stepRange(query.get('step'));
  const repaired = query.get('repaired') && new Set([...grouped(store.records, (record) => record.key)]
    .filter(([, turns]) => turns.some((one) => one.turn === 0 && one.outcome !== 'correct') && turns.some(isBestCandidate)).map(([key]) => key));
  const found = store.records.filter((record) =>
    (!set || record.held_out === (set === 'held-out' ? 1 : 0)) &&
    (!outcomes.size || outcomes.has(record.outcome)) &&
    (!tasks || tasks.has(record.task)) &&
    (rule === null || record.rules.includes(rule)) &&
    (turn === null || record.turn === turn) &&
    record.step >= from && record.step <= to &&
    (!repaired || (repaired.has(record.key) && isBestCandidate(record))));
  return found.sort(SORTS[query.get('sort')] || SORTS.sample);
}

function stepRange(text) {
  const found = /^\s*(\d+)\s*(?:[-–]\s*(\d+)?)?\s*$/.exec(text || '');
  if (!found) return [-Infinity, Infinity];
  const open = /[-–]\s*$/.test(text);
  return [Number(found[1]), open ? Infinity : Number(found[2] ?? found[1])];
}

function linkWith(query, name, value) {
  const next = new URLSearchParams(query);
  if (value === null || value === '') next.delete(name);
  else next.set(name, value);
  return `#/samples?${next}`;
}

const ROW = 32;
const AROUND = 12;

// A list that has elements for the rows in sight only.
function virtualList(head, row) {
  let records = [];
  const body = h('div', { class: 'rows' });
  const list = h('div', { class: 'list', tabindex: '-1' }, head, body);
  const draw = () => {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - AROUND);
    const last = Math.min(records.length, Math.ceil((list.scrollTop + (list.clientHeight || 800)) / ROW) + AROUND);
    const focus = document.activeElement && document.activeElement.dataset.at;
    body.replaceChildren(...records.slice(first, last).map((record, i) => {
      const element = row(record);
      element.dataset.at = first + i;
      element.style.top = `${(first + i) * ROW}px`;
      return element;
    }));
    if (focus !== undefined) body.querySelector(`[data-at="${focus}"]`)?.focus({ preventScroll: true });
  };
  list.addEventListener('scroll', () => requestAnimationFrame(draw));
  list.show = (found) => { records = found; body.style.height = `${records.length * ROW}px`; draw(); };
  list.focusRow = (at) => {
    const target = Math.max(0, Math.min(records.length - 1, at));
    if (target * ROW < list.scrollTop) list.scrollTop = target * ROW;
    if ((target + 2) * ROW > list.scrollTop + list.clientHeight) list.scrollTop = (target + 2) * ROW - list.clientHeight;
    draw();
    body.querySelector(`[data-at="${target}"]`)?.focus({ preventScroll: true });
  };
  return list;
}

const COLUMNS = [['sample', 'sample'], [null, 'task'], [null, 'outcome'], ['speedup', 'speedup'], ['score', 'score'],
  ['advantage', 'advantage'], ['tokens', 'tokens'], [null, 'findings']];

function sampleRow(record) {
  return h('a', { class: 'row sample', href: episodeLink(record) },
    h('span', { class: 'id' }, sampleName(record), record.held_out ? h('i', { title: 'held-out evaluation' }, ' held out') : null),
    h('span', { class: 'name', title: taskName(record) }, taskName(record)), outcomeMark(record.outcome),
    h('span', { class: 'number' }, record.speedup === null ? '' : times(record.speedup)),
    h('span', { class: 'number' }, number(record.score, 3)), h('span', { class: 'number' }, record.advantage === null ? '' : number(record.advantage)),
    h('span', { class: 'number' }, number(record.tokens)),
    h('span', { class: 'name' }, verdictMark(record.verdict), record.rules.map((rule) => words(store.rules[rule])).join(', ')));
}

function samples(parts, query) {
  const bar = h('div', { class: 'filters' });
  const go = (name) => (event) => history.replaceState(null, '', linkWith(query, name, event.target.value)) || draw();
  const task = h('input', { type: 'search', list: 'task-names', placeholder: 'task', 'aria-label': 'task', id: 'filter', oninput: go('task') });
  const step = h('input', { type: 'search', placeholder: 'step, 3-7', 'aria-label': 'step', size: 9, oninput: go('step') });
  const rule = h('select', { 'aria-label': 'rule', onchange: go('rule') });
  const chips = h('span', { class: 'chips' });
  const count = h('p', { class: 'count', 'aria-live': 'polite' });
  const head = h('div', { class: 'row head' });
  const list = virtualList(head, sampleRow);
  fill(bar, [chips, task, step, rule]);
  const tasks = h('datalist', { id: 'task-names' });

  function draw() {
    query = new URLSearchParams(location.hash.split('?')[1] || '');
    const found = selected(query);
    context = found;
    list.show(found);
    count.textContent = `${number(found.length)} of ${plural(store.records.length, 'sample')}`;
    if (query.size) fill(count, [' ', h('a', { href: '#/samples' }, 'show all')]);
    head.replaceChildren(...COLUMNS.map(([sort, name]) => (sort
      ? h('a', { href: linkWith(query, 'sort', sort), class: (query.get('sort') || 'sample') === sort ? 'sorted' : '' }, name) : h('span', null, name))));
    for (const [input, name] of [[task, 'task'], [step, 'step']]) if (document.activeElement !== input) input.value = query.get(name) || '';
    const chosen = new Set((query.get('outcome') || '').split(',').filter(Boolean));
    const present = grouped(store.records, (record) => record.outcome);
    const toggled = (outcome) => {
      const next = new Set(chosen);
      if (!next.delete(outcome)) next.add(outcome);
      return [...next].join(',');
    };
    const turns = store.records.reduce((most, record) => Math.max(most, record.turn), 0);
    const chip = (name, value, label, on) => h('a', { class: `chip${on ? ' on' : ''}`, href: linkWith(query, name, value), 'data-filter': name }, label);
    chips.replaceChildren(
      ...['train', 'held-out'].map((name) => chip('set', query.get('set') === name ? null : name, words(name), query.get('set') === name)),
      ...OUTCOMES.filter((outcome) => present.has(outcome)).map((outcome) => chip('outcome', toggled(outcome),
        [outcomeMark(outcome), h('small', null, number(present.get(outcome).length))], chosen.has(outcome))),
      ...(turns ? [...Array(turns + 1).keys()] : []).map((turn) => chip('turn', query.get('turn') === String(turn) ? null : turn, `turn ${turn}`, query.get('turn') === String(turn))),
      query.get('repaired') ? chip('repaired', null, 'repaired by feedback', true) : '');
    rule.replaceChildren(h('option', { value: '' }, 'any rule'), ...[...store.rules].sort().map((name) => h('option', { value: name }, words(name))));
    rule.value = query.get('rule') || '';
    if (tasks.childElementCount !== store.tasks.length) tasks.replaceChildren(...store.tasks.map(([name]) => h('option', { value: name })));
  }
  const page = h('div', { class: 'fixed' }, bar, count, list, tasks);
  page.update = draw;
  page.list = list;
  queueMicrotask(draw);
  return page;
}

// Share of the episodes with a correct turn, as in pass@1.
function solvedShare(records) {
  const episodes = [...grouped(records.filter((record) => record.outcome !== 'infra_error'), (record) => record.key).values()];
  return episodes.length ? episodes.filter((turns) => turns.some((record) => record.outcome === 'correct')).length / episodes.length : null;
}

function rateBar(records) {
  const share = solvedShare(records);
  return [svg('svg', { viewBox: '0 0 100 8', class: 'bar', preserveAspectRatio: 'none' },
    svg('rect', { class: 'back', width: 100, height: 8, rx: 2 }),
    svg('rect', { width: (share || 0) * 100, height: 8, rx: 2 })), h('span', { class: 'number' }, percent(share))];
}

function tasksView(parts, query) {
  const wanted = (query.get('q') || '').toLowerCase();
  const rows = [...grouped(store.records, (record) => record.task)]
    .filter(([task]) => store.tasks[task][0].toLowerCase().includes(wanted))
    .sort((a, b) => (store.tasks[a[0]][0] < store.tasks[b[0]][0] ? -1 : 1)).map(([task, records]) => {
      const top = best(records.filter(isBestCandidate));
      return h('a', { class: 'row task', href: `#/task/${encoded(store.tasks[task][0])}` },
        h('span', { class: 'name' }, store.tasks[task][0]), h('span', { class: 'muted' }, store.tasks[task][1] === null ? '' : `level ${store.tasks[task][1]}`),
        h('span', { class: 'number' }, plural(records.length, 'sample')), h('span', { class: 'rate' }, rateBar(records)),
        h('span', { class: 'number' }, top ? (top.speedup === null ? number(top.score) : times(top.speedup)) : ''));
    });
  const filter = h('input', { type: 'search', id: 'filter', placeholder: 'task', 'aria-label': 'task', value: query.get('q') || '',
    onchange: (event) => { location.hash = `#/tasks?q=${encoded(event.target.value)}`; } });
  return h('div', null, h('div', { class: 'filters' }, filter, h('span', { class: 'count' }, plural(rows.length, 'task'))),
    h('div', { class: 'row task head' }, ['task', '', '', 'episodes with a correct turn', 'best'].map((name) => h('span', null, name))), rows);
}

function taskView(parts) {
  const name = decodeURIComponent(parts[1]);
  const records = store.records.filter((record) => taskName(record).toWellFormed() === name);
  if (!records.length) return h('p', { class: 'empty' }, `There is no sample of task ${name}.`);
  context = [...records].sort(SORTS.sample);
  const groups = [...grouped(context, groupKey).values()];
  const table = (title, members) => members.length > 0 && h('section', null, h('h3', null, title), members.map((group) =>
    h('div', { class: 'group' }, h('span', { class: 'muted' }, `step ${group[0].step}`),
      h('span', { class: 'strip' }, [...grouped(group, (record) => record.key).values()].map((turns) => h('span', { class: 'cells' }, turns.map(cell)))),
      h('span', { class: 'rate' }, rateBar(group)),
      h('span', { class: 'muted' }, group.some((record) => record.excluded) ? group.find((record) => record.excluded).excluded : ''))));
  const top = best(records.filter(isBestCandidate));
  return h('div', null, h('div', { class: 'heading' }, h('h2', null, name),
    h('p', null, h('a', { href: `#/samples?task=${encoded(name)}` }, plural(records.length, 'sample')), ' ',
      top ? h('a', { href: episodeLink(top) }, `best kernel: score ${number(top.score, 3)}${top.speedup === null ? '' : `, ${times(top.speedup)}`}`) : 'no correct and clean kernel'),
    h('p', { class: 'muted' }, 'One square per turn, one row of squares per episode, one line per group.')),
  table('Training', groups.filter((group) => !group[0].held_out)), table('Held-out evaluations', groups.filter((group) => group[0].held_out)));
}

function heldOut() {
  const records = store.records.filter((record) => record.held_out);
  if (!records.length) return h('p', { class: 'empty' }, 'This run has no held-out evaluations yet.');
  const evaluations = [...grouped(records, (record) => record.step)].sort((a, b) => a[0] - b[0]);
  const tasks = [...grouped(records, (record) => record.task)].sort((a, b) => (store.tasks[a[0]][0] < store.tasks[b[0]][0] ? -1 : 1));
  context = [...records].sort(SORTS.sample);
  return h('div', null, h('p', { class: 'muted' }, 'Share of the episodes with a correct turn, for each task, after each number of steps.'),
    h('div', { class: 'scroll' }, h('table', { class: 'plain held-out' },
      h('tr', null, h('th', null, 'task'), evaluations.map(([step]) => h('th', null,
        h('a', { href: `#/samples?set=held-out&step=${step}` }, `step ${step}`)))),
      h('tr', { class: 'total' }, h('td', null, 'all'), evaluations.map(([, members]) => h('td', null, rateBar(members)))),
      tasks.map(([task, all]) => {
        const bySteps = grouped(all, (record) => record.step);
        return h('tr', null, h('td', null, h('a', { class: 'row', href: `#/task/${encoded(store.tasks[task][0])}` }, store.tasks[task][0])),
          evaluations.map(([step]) => h('td', null, bySteps.has(step) ? h('a', {
            href: `#/samples?set=held-out&step=${step}&task=${encoded(store.tasks[task][0])}` }, rateBar(bySteps.get(step))) : '')));
      }))));
}

const PREVIEW_LINES = 16;

function gallery() {
  const found = bestKernels();
  context = found;
  if (!found.length) return h('p', { class: 'empty' }, 'This run has no correct and clean kernel yet.');
  const seen = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(async (entry) => {
    seen.unobserve(entry.target);
    const { record } = entry.target;
    const episode = await loadEpisode(record.key);
    const turn = episode && episode.turns.find((one) => one.turn === record.turn);
    if (!turn) return;
    const lines = plainLines(episode.text(turn.source));
    const start = Math.max(0, lines.findIndex(([, line]) => /@triton|__global__|@.*jit|extern|at::Tensor/.test(line)));
    entry.target.append(code(lines.slice(start, start + PREVIEW_LINES).map(([sign, line]) => [sign, line.slice(0, 160)])));
  }), { rootMargin: '300px' });
  return h('div', { class: 'gallery' }, found.map((record) => {
    const card = h('a', { class: 'card row', href: episodeLink(record) },
      h('h3', null, h('span', { class: 'name' }, taskName(record)), h('b', null, record.speedup === null ? number(record.score, 2) : times(record.speedup))),
      h('p', { class: 'muted' }, `${record.held_out ? 'held out, ' : ''}step ${record.step}, turn ${record.turn}, score ${number(record.score, 3)}`));
    card.record = record;
    seen.observe(card);
    return card;
  }));
}

function suspects() {
  const found = reviewed().sort((a, b) => (a.outcome === 'hacked') - (b.outcome === 'hacked') || SORTS.speedup(a, b) || SORTS.sample(a, b));
  context = found;
  if (!found.length) return h('p', { class: 'empty' }, 'No sample needs a review.');
  return h('div', null, h('p', { class: 'muted' }, 'Correct samples with verdict suspect or a failed verification, then hacked ones. The fastest first.'),
    found.slice(0, 500).map((record) => h('a', { class: 'row suspect', href: episodeLink(record) },
      h('div', null, outcomeMark(record.outcome), verdictMark(record.verdict),
        record.verified === false ? h('span', { class: 'verdict v-hack' }, 'failed verification') : null,
        h('b', { class: 'name' }, taskName(record)), h('span', { class: 'muted' }, `${sampleName(record)}, score ${number(record.score, 3)}`),
        record.speedup === null ? null : h('b', null, times(record.speedup))),
      record.evidence.map(([rule, severity, evidence]) => h('p', null, h('span', { class: `finding v-${severity}` }, words(rule)), ` ${evidence}`)))),
    found.length > 500 ? h('p', { class: 'notice' }, `The first 500 of ${plural(found.length, 'suspect')}.`) : null);
}
