// What the console has beside its pages: local times, "/" for the search, Escape for menus, copying. Without it nothing is missing but this.
"use strict";
(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const format = (options) => new Intl.DateTimeFormat("en-GB", options);
  const clock = format({ timeStyle: "short" });
  const exact = format({ timeStyle: "medium" });
  const day = format({ day: "numeric", month: "short" });
  const dayOfYear = format({ day: "numeric", month: "short", year: "numeric" });
  const whole = format({ weekday: "long", day: "numeric", month: "long" });
  const now = new Date();

  // As ``instant`` writes it on the server, in the operator's own zone.
  const local = (at, form) => {
    if (form === "whole") return `${whole.format(at)}, ${clock.format(at)}`;
    const date = (at.getFullYear() === now.getFullYear() ? day : dayOfYear).format(at);
    if (at.toDateString() === now.toDateString()) return (form ? exact : clock).format(at);
    return form ? `${date} ${(form === "exact" ? exact : clock).format(at)}` : date;
  };

  for (const element of document.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (!Number.isNaN(at.getTime())) element.textContent = local(at, element.dataset.form);
  }
  const note = document.getElementById("zone");
  if (note) note.textContent = zone === "UTC" ? "Times: UTC." : `Times: ${zone}. UTC on hover.`;

  for (const input of document.querySelectorAll("input[data-utc]")) {
    const beside = input.insertAdjacentElement("afterend", document.createElement("span"));
    beside.className = "local-time note";
    const say = () => {
      const at = new Date(`${input.value}Z`);
      const differs = !Number.isNaN(at.getTime()) && at.getTimezoneOffset() !== 0;
      beside.textContent = differs ? `${dayOfYear.format(at)} ${clock.format(at)} ${zone}` : "";
    };
    input.addEventListener("input", say);
    say();
  }

  for (const element of document.querySelectorAll("[data-copy]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.setAttribute("aria-label", "Copy");
    button.innerHTML = '<span class="icon icon-copy" aria-hidden="true"></span>';
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(element.dataset.copy);
      button.setAttribute("aria-label", "Copied");
      button.firstChild.className = "icon icon-tick";
    });
    element.insertAdjacentElement("afterend", button);
  }

  const close = (but) => {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (menu === but) continue;
      if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
      menu.open = false;
    }
  };
  document.addEventListener("click", (event) => close(event.target.closest("details.menu")));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close(null);
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select")) return;
    const search = document.getElementById("search") || document.querySelector("input[type=search]");
    if (!search) return;
    event.preventDefault();
    search.focus();
    search.select();
  });

  // The tabs of one page: the part that its address names, or the first.
  const parts = document.querySelectorAll('.tabs a[href^="#"]');
  const mark = () => {
    const current = [...parts].find((tab) => tab.hash === location.hash) || parts[0];
    for (const tab of parts) tab === current ? tab.setAttribute("aria-current", "true") : tab.removeAttribute("aria-current");
  };
  if (parts.length) {
    addEventListener("hashchange", mark);
    mark();
  }

  document.getElementById("action-toggle")?.addEventListener("change", (event) => {
    for (const box of document.querySelectorAll("input.action-select")) box.checked = event.target.checked;
  });
})();
