// One episode: its turns side by side.

function pairs(entries) {
  return h('dl', { class: 'pairs' }, entries.filter(([, value]) => value !== null && value !== undefined && value !== '')
    .map(([name, value]) => [h('dt', null, name), h('dd', null, value)]));
}

const seconds = (value) => `${number(value, value < 10 ? 2 : 0)} s`;
const microseconds = (time) => (time ? `${number(time.median_us, 1)} µs` : null);

function evaluationFacts(turn) {
  const found = turn.evaluation;
  const wrong = found.mismatch;
  return pairs([
    ['tests passed', found.tests_total ? `${found.tests_passed || 0} of ${found.tests_total}` : null],
    ['speedup', found.speedup ? `${times(found.speedup)}${found.speedup_ci ? ` (${found.speedup_ci.map((v) => v.toFixed(2)).join('–')})` : ''}` : null],
    ['not timed', found.not_timed],
    ['run time', microseconds(found.runtime)],
    ['baseline', microseconds(found.baseline)],
    ['own kernels', found.own_kernel_share === undefined ? null : `${percent(found.own_kernel_share)} of device time`],
    ['difference', wrong ? [wrong.kind, wrong.output, wrong.expected && `expected ${wrong.expected}, got ${wrong.actual}`,
      wrong.max_abs !== null && `max ${short(wrong.max_abs)}`,
      wrong.wrong_share !== null && `${percent(wrong.wrong_share)} of elements`].filter(Boolean).join(', ') : null],
    ['isolation', found.isolation ? `level ${found.isolation.level || 0}` : null],
  ]);
}

function scoreParts(record, turn) {
  const parts = Object.entries(turn.parts);
  const largest = Math.max(...parts.map(([, value]) => Math.abs(value)), 1e-9);
  return h('table', { class: 'parts' },
    parts.map(([name, value]) => h('tr', null, h('td', null, name),
      h('td', null, svg('svg', { viewBox: '0 0 60 8', class: value < 0 ? 'bar negative' : 'bar' },
        svg('rect', { width: (Math.abs(value) / largest) * 60, height: 8, rx: 2 }))),
      h('td', { class: 'number' }, number(value, 3)))),
    h('tr', { class: 'total' }, h('td', { colspan: 2 }, 'score'), h('td', { class: 'number' }, number(record.score, 3))));
}

function findings(turn, column) {
  if (!turn.findings.length) return null;
  const jump = (line) => {
    const find = () => column.querySelector(`.kernel [data-line="${line}"]`);
    // A long unchanged part is folded.
    if (!find()) column.querySelector('.toggle-diff')?.click();
    const element = find();
    if (!element) return;
    element.classList.add('hit');
    element.scrollIntoView({ block: 'center' });
  };
  return h('section', null, h('h4', null, 'Findings'), h('ul', { class: 'findings' }, turn.findings.map((finding) =>
    h('li', null, h('a', { href: `#/samples?rule=${encoded(finding.rule)}`, class: `finding v-${finding.severity}` },
      words(finding.rule)), ` ${finding.severity}${finding.checker ? `, ${finding.checker}` : ''}`,
    finding.line ? h('button', { class: 'link', onclick: () => jump(finding.line) }, `line ${finding.line}`) : null,
    h('p', null, finding.evidence.slice(0, 4000))))));
}

function examples(turn) {
  if (!turn.examples.length && !turn.excluded_examples.length) return null;
  const row = (example) => h('tr', null, h('td', null, example.id || 'example of the backend'), h('td', null, example.origin),
    h('td', { class: 'number' }, number(example.similarity)), h('td', null, example.reason ? `excluded: ${words(example.reason)}` : 'in the prompt'));
  return fold(`Retrieved examples (${turn.examples.length} shown, ${turn.excluded_examples.length} excluded)`,
    () => h('table', { class: 'plain' }, h('tr', null, ['example', 'origin', 'similarity', ''].map((name) => h('th', null, name))),
      turn.examples.map(row), turn.excluded_examples.map(row)));
}

function kernelSection(source, before) {
  if (!source) return null;
  const section = h('section', { class: 'kernel' });
  const lines = source.replace(/\n$/, '').split('\n');
  let showDiff = Boolean(before) && before !== source;
  const draw = () => {
    const changed = before && before !== source;
    const body = showDiff ? code(diffLines(before.replace(/\n$/, '').split('\n'), lines), { folded: true }) : code(plainLines(source));
    section.replaceChildren(h('h4', null, 'Kernel ',
      changed ? h('button', { class: 'link toggle-diff', onclick: () => { showDiff = !showDiff; draw(); } },
        showDiff ? 'changes since the turn before' : 'whole kernel') : null,
      before === source ? h('span', { class: 'muted' }, 'same as the turn before') : null,
      h('button', { class: 'link', onclick: (event) => {
        navigator.clipboard.writeText(source).then(() => { event.target.textContent = 'copied'; }, () => {});
      } }, 'copy')), body);
  };
  draw();
  return section;
}

function turnColumn(record, turn, text, before, chosen) {
  const column = h('article', { class: `turn${chosen ? ' chosen' : ''}`, id: `turn-${turn.turn}` });
  const thinking = text(turn.thinking);
  const source = text(turn.source);
  const feedback = text(turn.feedback);
  const message = text(turn.message);
  const reply = text(turn.reply);
  const detail = text(turn.detail);
  fill(column, [
    h('header', null, h('h3', null, `Turn ${turn.turn}`), outcomeMark(record.outcome), verdictMark(record.verdict),
      record.verified === null ? null : h('span', { class: record.verified ? 'muted' : 'verdict v-hack' },
        record.verified ? 'verified' : 'failed verification'),
      h('span', { class: 'spacer' }), record.speedup === null ? null : h('b', { class: 'speedup' }, times(record.speedup))),
    h('div', { class: 'numbers' },
      h('span', { title: 'weighted sum of the reward components' }, 'score ', h('b', null, number(record.score, 3))),
      h('span', { title: 'from this turn to the end of the episode' }, 'return ', h('b', null, number(record.return, 3))),
      h('span', null, 'advantage ', h('b', { class: record.advantage > 0 ? 'up' : record.advantage < 0 ? 'down' : '' }, number(record.advantage, 3))),
      record.excluded ? h('span', { class: 'muted' }, `not trained on: ${record.excluded}`) : null),
    scoreParts(record, turn),
    message && message !== feedback ? h('section', null, h('h4', null, 'Message'), prose(message)) : null,
    findings(turn, column),
    thinking ? fold(`Thinking (${plural(thinking.length, 'character')})`, () => prose(thinking)) : null,
    text(turn.summary) ? h('section', null, h('h4', null, 'Summary of the change'), prose(text(turn.summary))) : null,
    kernelSection(source, before),
    source ? null : h('section', null, h('h4', null, turn.problem ? `Reply: ${words(turn.problem)}` : 'Reply'), reply ? code(plainLines(reply)) : '(empty)'),
    feedback ? h('section', { class: 'feedback' }, h('h4', null, 'Feedback'), prose(feedback)) : null,
    h('div', { class: 'folds' },
      fold('Evaluation', () => h('div', null, evaluationFacts(turn),
        fold('all facts', () => code(plainLines(JSON.stringify(turn.evaluation, null, 2)))))),
      detail ? fold('Complete log', () => prose(detail)) : null,
      examples(turn),
      fold(`Prompt (${plural(turn.tokens[0], 'token')}, ${plural(turn.prompt.length, 'message')})`, () =>
        turn.prompt.map(([role, reference], i) => fold(`${role}, ${plural(text(reference).length, 'character')}`,
          () => prose(text(reference)), i === turn.prompt.length - 1))),
      source ? fold(`Whole reply (${plural(turn.tokens[1], 'token')}${turn.stop === 'length' ? ', cut off' : ''})`, () => prose(turn.opening + reply)) : null,
      fold('Time', () => pairs(Object.entries(turn.seconds).map(([name, value]) => [name, seconds(value)])))),
  ]);
  return column;
}

async function episodeView(parts, query) {
  const held = parts[1] === 'held-out' ? 1 : 0;
  const key = `${held}.${parts[2]}`;
  const records = store.records.filter((record) => record.key === key).sort((a, b) => a.turn - b.turn);
  if (!records.length) return h('p', { class: 'empty' }, `There is no episode ${parts[2]}.`);
  const [first] = records;
  const chosen = Number(query.get('turn') || 0);
  const found = await loadEpisode(key);
  const group = grouped(store.records.filter((record) => groupKey(record) === groupKey(first)), (record) => record.key);
  const strip = [...group].sort((a, b) => a[1][0].episode - b[1][0].episode).map(([other, members]) =>
    h('span', { class: `cells${other === key ? ' chosen' : ''}` }, members.sort((a, b) => a.turn - b.turn).map(cell)));
  const heading = h('div', { class: 'heading' },
    h('h2', null, h('a', { href: `#/task/${encoded(taskName(first))}` }, taskName(first))),
    h('p', { class: 'muted' }, `${held ? 'held-out evaluation after' : 'training,'} step ${first.step}, episode ${first.episode} of the group `,
      h('span', { class: 'strip' }, strip)));
  if (!found) {
    return h('div', null, heading, h('p', { class: 'notice' }, 'The texts of this episode are not in the report: ',
      'they were excluded by --max-mb. ', h('code', null, `kernelrl view ${store.run}`), ' shows them.'),
    h('p', null, records.map((record) => [outcomeMark(record.outcome), ` score ${number(record.score, 3)} `])));
  }
  let before = '';
  if (isSearch(records)) heading.append(attemptTree(records));
  const columns = [];
  for (const turn of found.turns) {
    const record = records.find((one) => one.turn === turn.turn);
    if (!record) continue;
    columns.push(turnColumn(record, turn, found.text, before, turn.turn === chosen && found.turns.length > 1));
    before = found.text(turn.source) || before;
  }
  const turns = h('div', { class: 'turns' }, columns);
  queueMicrotask(() => requestAnimationFrame(() => {
    const column = document.getElementById(`turn-${chosen}`);
    if (column && chosen) turns.scrollLeft = column.offsetLeft - turns.offsetLeft;
  }));
  return h('div', null, heading, turns);
}

// A turn as a small square in the colour of its outcome.
function cell(record) {
  const title = `${sampleName(record)}: ${words(record.outcome)}, score ${number(record.score, 3)}` +
    (record.speedup === null ? '' : `, ${times(record.speedup)}`);
  return h('a', { class: `cell f-${record.outcome}${record.verdict === 'clean' ? '' : ' flagged'}`, href: episodeLink(record), title });
}
