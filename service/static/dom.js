// Elements without ceremony. Text is only ever set as text: nothing that the service says becomes markup.

export const byId = (id) => document.getElementById(id);

// make("button", { type: "button", "aria-label": "Remove" }, "✕"): names with a dash are attributes, others properties.
export function make(tag, settings = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(settings)) {
    if (name.includes("-")) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

export const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

// Unchanged text is left alone, so that it is neither laid out nor announced again.
export function setText(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

export function setBadge(element, level, text) {
  element.classList.toggle("good", level === "good");
  element.classList.toggle("warn", level === "warn");
  element.classList.toggle("bad", level === "bad");
  setText(element, text);
}

// What the user chose, kept for the next visit where the browser lets us.
export function remember(name, value) {
  try {
    localStorage.setItem(`pinhole.${name}`, value);
  } catch { /* for this visit only */ }
}

export function recall(name) {
  try {
    return localStorage.getItem(`pinhole.${name}`) ?? "";
  } catch {
    return "";
  }
}

// A module when it is first needed. Browsers remember for ever that one could not be fetched: then under another name.
export const load = (name) => import(`./${name}.js`).catch(() => import(`./${name}.js?${Date.now()}`));
