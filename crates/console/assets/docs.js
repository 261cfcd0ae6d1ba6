// The search, and a notice for error codes that the page does not list. The pages work without it.

const MAX_RESULTS = 12;
const box = document.querySelector(".search");
const input = document.getElementById("search");
const list = document.getElementById("found");
const said = document.getElementById("said");
let index;

// One request for all searches; a failed one is tried again with the next letter.
function load() {
  index ??= fetch("/docs/search.json")
    .then((answer) => {
      if (!answer.ok) throw new Error(`the index: status ${answer.status}`);
      return answer.json();
    })
    .then((entries) =>
      entries.map(([place, heading, text]) => ({
        place, heading, text, title: heading.toLowerCase(), body: text.toLowerCase(),
      })),
    );
  index.catch(() => (index = undefined));
  return index;
}

// All words must occur. A word of the heading counts more, at its beginning most.
function score(entry, words) {
  let sum = 0;
  for (const word of words) {
    const inTitle = entry.title.indexOf(word);
    const inBody = entry.body.indexOf(word);
    if (inTitle < 0 && inBody < 0) return 0;
    if (inTitle >= 0) sum += inTitle === 0 || /[^\p{L}\p{N}_]/u.test(entry.title[inTitle - 1]) ? 20 : 10;
    if (inBody >= 0) sum += 2;
  }
  return sum + 1 / (1 + entry.title.length);
}

function excerpt(entry, words) {
  const at = Math.max(0, ...words.map((word) => entry.body.indexOf(word)));
  const start = Math.max(0, at - 40);
  const text = entry.text.slice(start, start + 120);
  return `${start > 0 ? "…" : ""}${text}${start + 120 < entry.text.length ? "…" : ""}`;
}

function item(entry, words) {
  const link = document.createElement("a");
  link.href = entry.place;
  link.textContent = entry.heading;
  const small = document.createElement("small");
  small.textContent = excerpt(entry, words);
  link.append(small);
  const row = document.createElement("li");
  row.append(link);
  return row;
}

async function search() {
  const asked = input.value;
  const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
  list.hidden = words.length === 0;
  if (words.length === 0) return;
  let entries;
  try {
    entries = await load();
  } catch (error) {
    list.replaceChildren();
    said.textContent = `The search is not available: ${error.message}`;
    return;
  }
  if (input.value !== asked) return;
  const found = entries
    .map((entry) => [score(entry, words), entry])
    .filter(([points]) => points > 0)
    .sort(([one], [other]) => other - one)
    .slice(0, MAX_RESULTS);
  list.replaceChildren(...found.map(([, entry]) => item(entry, words)));
  said.textContent = found.length === 0 ? "Nothing was found." : `${found.length} results.`;
  if (found.length === 0) {
    const row = document.createElement("li");
    row.textContent = "Nothing was found.";
    list.append(row);
  }
}

function move(step) {
  const places = [input, ...list.querySelectorAll("a")];
  const at = places.indexOf(document.activeElement);
  places[Math.min(places.length - 1, Math.max(0, at + step))]?.focus();
}

function keys(event) {
  if (event.key === "ArrowDown") move(1);
  else if (event.key === "ArrowUp") move(-1);
  else if (event.key === "Escape") {
    list.hidden = true;
    input.focus();
  } else return;
  event.preventDefault();
}

if (box && input && list) {
  box.hidden = false;
  input.addEventListener("input", search);
  input.addEventListener("focus", () => load().catch(() => {}), { once: true });
  box.addEventListener("keydown", keys);
  document.addEventListener("click", (event) => {
    if (!box.contains(event.target)) list.hidden = true;
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      input.focus();
    }
  });
  // A search can be a link: /docs?q=cursor
  const asked = new URLSearchParams(location.search).get("q");
  if (asked) {
    input.value = asked;
    search();
  }
}

// A handler of the operator can send codes that no page knows in advance.
function explainUnknownCode() {
  if (location.pathname !== "/errors" || location.hash.length < 2) return;
  let code;
  try {
    code = decodeURIComponent(location.hash.slice(1));
  } catch {
    return;
  }
  document.querySelector(".notice")?.remove();
  if (document.getElementById(code)) return;
  const place = document.getElementById("codes-of-action-handlers");
  const notice = document.createElement("p");
  notice.className = "notice";
  const name = document.createElement("code");
  name.textContent = code;
  notice.append(name, " is a code of an action handler: the message of the response explains it.");
  place?.after(notice);
  place?.scrollIntoView();
}

addEventListener("hashchange", explainUnknownCode);
explainUnknownCode();
