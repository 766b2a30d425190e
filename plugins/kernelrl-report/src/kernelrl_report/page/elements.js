// Elements. Every text enters the page here, as a text node: it never becomes markup.

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\u2028\u2029]/gu;

// Control characters, and those that change the order of a text or are invisible, as visible symbols.
function visible(text) {
  return String(text).replace(HIDDEN, (found) => {
    const code = found.codePointAt(0);
    if (code === 10 || code === 9) return found;
    return code < 32 ? String.fromCharCode(0x2400 + code) : `⟨U+${code.toString(16).toUpperCase().padStart(4, '0')}⟩`;
  });
}

function fill(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
  return element;
}

// An element. Properties that begin with "on" are listeners; the others are attributes.
function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, name === 'title' ? visible(value) : value);
  }
  return fill(element, children);
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return fill(element, children);
}

// A formatter takes far longer to make than to use.
const formats = [0, 1, 2, 3].map((digits) => new Intl.NumberFormat('en', { maximumFractionDigits: digits }));
const number = (value, digits = 2) => (value === null || value === undefined ? '–' : formats[digits].format(value));
const percent = (share) => (share === null || Number.isNaN(share) ? '–' : `${Math.round(share * 100)} %`);
const times = (speedup) => (speedup === null || speedup === undefined ? '–' : `${speedup.toFixed(2)}×`);
const words = (name) => String(name).replaceAll('_', ' ');
// A lone surrogate cannot be part of a link.
const encoded = (text) => encodeURIComponent(String(text).toWellFormed());
const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? '' : 's'}`;

// Folded content, which is made when it is first opened.
function fold(title, make, open = false) {
  const body = h('div', { class: 'fold-body' });
  const element = h('details', { open: open ? '' : null }, h('summary', null, title), body);
  const show = () => {
    if (element.open && !body.firstChild) fill(body, [make()]);
  };
  element.addEventListener('toggle', show);
  show();
  return element;
}

const FIRST_CHARACTERS = 20000;
const MORE_CHARACTERS = 200000;

// A long text is shown in parts, so that a megabyte does not stop the page.
function prose(text) {
  const body = h('div', { class: 'prose' }, text.slice(0, FIRST_CHARACTERS));
  return text.length <= FIRST_CHARACTERS ? body : h('div', null, body, more(text, FIRST_CHARACTERS, body));
}

function more(text, from, body) {
  let shown = from;
  const label = () => `${number(text.length - shown)} more characters`;
  const button = h('button', { class: 'more' }, label());
  button.addEventListener('click', () => {
    fill(body, [text.slice(shown, shown + MORE_CHARACTERS)]);
    shown += MORE_CHARACTERS;
    if (shown >= text.length) button.remove();
    else button.textContent = label();
  });
  return button;
}

function outcomeMark(outcome) {
  return h('span', { class: `mark o-${outcome}` }, words(outcome));
}

function verdictMark(verdict) {
  return verdict === 'clean' ? null : h('span', { class: `verdict v-${verdict}` }, verdict);
}
