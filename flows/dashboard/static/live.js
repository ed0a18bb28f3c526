// Looks for what is new: fetches the page's own address, and replaces the parts that differ. Nothing else is ever loaded.
"use strict";
(() => {
  const SLOW = 30000;
  let every = Number(document.body.dataset.every) * 1000;
  if (!every) return;
  let tag = "", waited = every;
  const shown = new Map();
  const parts = (root) => [...root.querySelectorAll("[data-live]")];
  for (const part of parts(document)) shown.set(part.id, part.outerHTML);

  const busy = (part) => {
    const chosen = getSelection();
    return chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode);
  };

  // where the reader is in a part: the folds that are open, how far tables are scrolled, what has the focus
  const placeIn = (part) => {
    const at = document.activeElement;
    const able = [...part.querySelectorAll("a, button, summary, input, [tabindex]")];
    return {
      open: [...part.querySelectorAll("details[open] > summary")].map((fold) => fold.textContent),
      scrolled: [...part.querySelectorAll(".scroll, pre")].map((box) => box.scrollLeft),
      ticked: [...part.querySelectorAll("input:checked")].map((box) => box.value),
      focus: part.contains(at) ? { href: at.getAttribute("href"), place: able.indexOf(at) } : null,
    };
  };
  const putBack = (part, place) => {
    for (const fold of part.querySelectorAll("details > summary")) {
      if (place.open.includes(fold.textContent)) fold.parentElement.open = true;
    }
    [...part.querySelectorAll(".scroll, pre")].forEach((box, i) => { box.scrollLeft = place.scrolled[i] || 0; });
    for (const box of part.querySelectorAll("input")) box.checked = place.ticked.includes(box.value);
    if (place.focus) {
      const able = [...part.querySelectorAll("a, button, summary, input, [tabindex]")];
      const same = able.find((one) => place.focus.href && one.getAttribute("href") === place.focus.href);
      (same || able[place.focus.place] || part).focus({ preventScroll: true });
    }
  };

  // false: the reader has something selected in a part that has to be replaced
  const replace = (fresh) => {
    const now = parts(document), next = parts(fresh);
    const same = now.length === next.length && now.every((part, i) => part.id === next[i].id);
    if (!same) {
      if (now.some(busy)) return false;
      for (const part of now) part.remove();
      document.getElementById("content").prepend(...next.map((part) => document.importNode(part, true)));
      shown.clear();
      for (const part of next) shown.set(part.id, part.outerHTML);
      return true;
    }
    let all = true;
    next.forEach((part, i) => {
      const text = part.outerHTML;
      if (shown.get(part.id) === text) return;
      if (busy(now[i])) {
        all = false;
        return;
      }
      const place = placeIn(now[i]);
      const made = document.importNode(part, true);
      now[i].replaceWith(made);
      putBack(made, place);
      shown.set(part.id, text);
    });
    return all;
  };

  const stale = document.getElementById("stale");
  const silent = (why) => {
    stale.textContent = `${why}; what stands here is of ${heard.toISOString().slice(11, 19)} UTC.`;
    stale.hidden = false;
    waited = Math.min(waited * 2, SLOW);
  };

  let looking = false, heard = new Date();
  const look = async () => {
    if (looking) return;
    looking = true;
    try {
      const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, redirect: "error" });
      if (answer.status === 401) {
        silent("headway ui was started anew: open the address that it printed");
      } else if (answer.ok || answer.status === 304) {
        stale.hidden = true;
        heard = new Date();
        waited = every;
        if (answer.status === 200) {
          const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
          tag = replace(fresh) ? answer.headers.get("ETag") || "" : "";
          document.title = fresh.title;
          every = Number(fresh.body.dataset.every) * 1000;
          waited = every;
        }
      } else {
        silent(`headway ui answers with ${answer.status}`);
      }
    } catch {
      silent("headway ui does not answer");
    }
    looking = false;
    if (every) wait(); // else it has ended: nothing changes any more
  };
  let timer = 0;
  const wait = () => { timer = setTimeout(() => (document.hidden ? wait() : look()), waited); };
  const now = () => {
    if (document.hidden || !every) return;
    clearTimeout(timer);
    look();
  };
  addEventListener("online", now);
  document.addEventListener("visibilitychange", now);
  wait();
})();
