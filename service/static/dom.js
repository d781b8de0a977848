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
