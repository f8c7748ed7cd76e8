// Keys, the theme, sorting and live updates. Every page works without this file.
"use strict";

(() => {
  // The theme is set before the page is drawn, so that it does not flash.
  const themes = ["system", "light", "dark"];
  const storage = (() => {
    try { return window.localStorage; } catch { return null; } // blocked by the user
  })();

  function theme() {
    const stored = storage && storage.getItem("theme");
    return themes.includes(stored) ? stored : "system";
  }

  function applyTheme() {
    const now = theme();
    if (now === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = now;
    const button = document.getElementById("theme");
    if (button) button.textContent = "Theme: " + now;
  }

  function nextTheme() {
    const next = themes[(themes.indexOf(theme()) + 1) % themes.length];
    if (storage) storage.setItem("theme", next);
    applyTheme();
  }

  applyTheme();

  // Rows of lists: j and k move between the first links of the rows.
  function rowLinks() {
    const links = [];
    for (const row of document.querySelectorAll("table.rows tbody tr")) {
      const link = row.querySelector("a");
      if (link && row.offsetParent !== null) links.push(link);
    }
    return links;
  }

  function moveRow(step) {
    const links = rowLinks();
    if (links.length === 0) return;
    const row = document.activeElement && document.activeElement.closest("table.rows tbody tr");
    const at = row ? links.indexOf(row.querySelector("a")) : (step > 0 ? -1 : links.length);
    const next = links[Math.max(0, Math.min(links.length - 1, at + step))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  const pages = { o: "/", r: "/runs", c: "/compare", b: "/benches", t: "/tunings", k: "/kernel", n: "/knobs", f: "/fleet", s: "/start" };
  let going = 0; // until when a second key names a page

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const target = event.target;
    const typing = target instanceof HTMLElement && target.matches("input, select, textarea");
    if (event.key === "Escape" && typing) { target.blur(); return; }
    const help = document.getElementById("help");
    if (typing || help.open) return;
    if (Date.now() < going && pages[event.key]) {
      location.href = pages[event.key];
      event.preventDefault();
      return;
    }
    const action = {
      "/": () => { const field = document.querySelector("input[type=search], main input:not([type=hidden]), main select"); if (field) field.focus(); },
      "j": () => moveRow(1),
      "k": () => moveRow(-1),
      "t": nextTheme,
      "g": () => { going = Date.now() + 1500; },
      "?": () => help.showModal(),
    }[event.key];
    if (action) {
      event.preventDefault();
      action();
    }
  }

  // Sorting: the heads of sortable tables become buttons.
  function sortKey(cell) {
    if (!cell) return "";
    const text = cell.dataset.sort || cell.textContent.trim();
    const figure = parseFloat(text);
    return cell.dataset.sort || Number.isNaN(figure) || !/^[-+.\d]/.test(text) ? text : figure;
  }

  function compareKeys(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1; // figures stand before what was not measured
    if (typeof b === "number") return 1;
    return a.localeCompare(b);
  }

  function sortBy(table, head) {
    const column = [...head.parentElement.children].indexOf(head);
    const descending = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, key: sortKey(row.cells[column]) }));
    rows.sort((a, b) => (descending ? -1 : 1) * compareKeys(a.key, b.key));
    body.append(...rows.map((r) => r.row));
  }

  function makeSortable(root) {
    for (const table of root.querySelectorAll("table.sortable")) {
      for (const head of table.tHead.rows[0].cells) {
        const button = document.createElement("button");
        button.type = "button";
        button.append(...head.childNodes);
        button.addEventListener("click", () => sortBy(table, head));
        head.append(button);
      }
    }
  }

  // Commands: a button copies one that a user would paste. A page that is not served securely has no
  // clipboard; there the browser's own command does it.
  async function copyText(code) {
    try {
      await navigator.clipboard.writeText(code.textContent);
      return true;
    } catch {
      const selection = getSelection();
      selection.selectAllChildren(code);
      return document.execCommand("copy");
    }
  }

  function makeCopyable(root) {
    for (const code of root.querySelectorAll("code")) {
      if (!code.textContent.startsWith("attune ") || code.closest("a, .log, .job")) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.setAttribute("aria-label", "Copy: " + code.textContent.slice(0, 80));
      button.addEventListener("click", async () => {
        button.textContent = (await copyText(code)) ? "Copied" : "Select and copy";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
      if (code.parentElement.tagName === "PRE") code.before(button);
      else code.after(button);
    }
  }

  // Live parts: an event says that something changed; the server renders the part again. At most one
  // request is on its way.
  function follow(live) {
    const source = new EventSource(live.dataset.events);
    const status = document.getElementById("status");
    let waiting = false;
    let stale = false;
    let ended = false;

    async function refresh() {
      if (waiting) { stale = true; return; }
      waiting = true;
      do {
        stale = false;
        try {
          const response = await fetch(live.dataset.part, { cache: "no-store" });
          if (response.ok) replace(live, await response.text());
        } catch { /* the server is gone; the event source reports it */ }
        await new Promise((resolve) => setTimeout(resolve, 300));
      } while (stale);
      waiting = false;
    }

    source.addEventListener("progress", (event) => {
      const data = JSON.parse(event.data);
      if (data.evaluation) status.replaceChildren(...breakable(searchText(data)));
      refresh();
    });
    source.addEventListener("elite", refresh);
    source.addEventListener("done", (event) => {
      const data = JSON.parse(event.data);
      ended = true;
      source.close();
      status.textContent = (data.number ? "Job " + data.number : "The search") + " is " + data.state + ".";
      document.documentElement.dataset.live = "done";
      refresh();
    });
    source.addEventListener("open", () => { document.documentElement.dataset.live = "open"; });
    source.addEventListener("error", () => {
      if (!ended) status.textContent = "The connection is lost; this page tries again.";
    });
  }

  // A part without events is asked for again every few seconds, while the page is looked at.
  function poll(live) {
    const status = document.getElementById("status");
    async function refresh() {
      if (!document.hidden) {
        try {
          const response = await fetch(live.dataset.part, { cache: "no-store" });
          status.textContent = response.ok ? "" : "The fleet does not answer; this page tries again.";
          if (response.ok) replace(live, await response.text());
          if (response.ok) document.documentElement.dataset.live = "open";
        } catch {
          status.textContent = "The connection is lost; this page tries again.";
        }
      }
      setTimeout(refresh, 1000 * live.dataset.refresh);
    }
    setTimeout(refresh, 1000 * live.dataset.refresh);
  }

  function searchText(data) {
    let text = data.evaluations + " evaluations, " + data.failed + " failed.";
    if (data.best) text += " The best so far is " + data.best;
    if (data.best && data.gain) text += ", " + data.gain.toFixed(3) + "x the default";
    return data.best ? text + "." : text;
  }

  // breakable lets the name of a variant break between its knobs.
  function breakable(text) {
    return text.split(/(?=\+)/).flatMap((part) => [document.createElement("wbr"), part]);
  }

  // replace puts a rendered part into the page. The text comes from this server's templates; a
  // document that is parsed this way runs no scripts. The focus stays where it was.
  function replace(live, text) {
    const parsed = new DOMParser().parseFromString(text, "text/html");
    const focused = live.contains(document.activeElement) ? document.activeElement : null;
    const label = focused && (focused.getAttribute("aria-label") || focused.textContent);
    const scrolled = window.scrollY;
    live.replaceChildren(...parsed.body.childNodes);
    makeSortable(live);
    makeCopyable(live);
    if (label) {
      const again = [...live.querySelectorAll("a, button, [tabindex]")].find((e) => (e.getAttribute("aria-label") || e.textContent) === label);
      if (again) again.focus({ preventScroll: true });
    }
    window.scrollTo({ top: scrolled });
  }

  document.addEventListener("DOMContentLoaded", () => {
    for (const id of ["theme", "keys"]) document.getElementById(id).hidden = false;
    document.getElementById("theme").addEventListener("click", nextTheme);
    document.getElementById("keys").addEventListener("click", () => document.getElementById("help").showModal());
    applyTheme();
    makeSortable(document);
    makeCopyable(document);
    document.addEventListener("keydown", onKey);
    const live = document.getElementById("live");
    if (live && live.dataset.events) follow(live);
    if (live && live.dataset.refresh) poll(live);
    document.documentElement.dataset.ready = "yes";
  });
})();
