// Says beside every instant, which is in UTC, what it is where the operator is. Without it nothing is missing but this.
"use strict";
(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const day = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short" });
  const utcDay = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeZone: "UTC" });
  const clock = new Intl.DateTimeFormat("sv-SE", { timeStyle: "short" });
  const offset = (at) => at.getTimezoneOffset() !== 0;

  const local = (at) => {
    const date = day.format(at) === utcDay.format(at) ? "" : `${day.format(at)} `;
    return `${date}${clock.format(at)} ${zone}`;
  };

  const beside = (element, at) => {
    const note = element.nextElementSibling?.classList.contains("local-time")
      ? element.nextElementSibling
      : element.insertAdjacentElement("afterend", document.createElement("span"));
    note.className = "local-time";
    note.textContent = at && offset(at) ? local(at) : "";
  };

  for (const element of document.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    if (!Number.isNaN(at.getTime())) beside(element, at);
  }

  for (const input of document.querySelectorAll("input[data-utc]")) {
    const say = () => {
      const at = new Date(`${input.value}Z`);
      beside(input, Number.isNaN(at.getTime()) ? null : at);
    };
    input.addEventListener("input", say);
    say();
  }
})();
