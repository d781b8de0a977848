// A control made from the JSON Schema of one parameter: slider and number, check box, choice, colour, list, or text.
import { make, setText } from "./dom.js";

const SAID_MS = 6000;

let made = 0;

// The schema itself behind references and "or null".
function resolved(schema, definitions) {
  const choice = (schema.anyOf ?? schema.allOf)?.find((option) => option.type !== "null");
  const inner = schema.$ref ? definitions?.[schema.$ref.split("/").at(-1)] : choice;
  return inner ? { ...resolved(inner, definitions), ...schema } : schema;
}

// changed(value) is called with each value that the user chooses. Returns {element, set, refuse}.
// What was typed into a text stays there when it is refused, to be mended; other controls go back to the value that holds.
export function makeField(name, rawSchema, definitions, changed) {
  const schema = resolved(rawSchema, definitions);
  const id = `field-${++made}`;
  const hint = make("span", { id: `${id}-hint`, className: "hint quiet" });
  const field = { element: null, name };
  const sample = sampleOf(schema);
  const meaning = [schema.description, schema.default?.length === 0 && sample].filter(Boolean).join(" ");
  setText(hint, meaning);

  let fading = 0;
  const clear = () => {
    clearTimeout(fading);
    if (!hint.classList.contains("error")) return;
    hint.classList.remove("error");
    hint.removeAttribute("role");
    setText(hint, meaning);
    for (const input of controls.inputs) input.removeAttribute("aria-invalid");
  };
  const controls = controlsOf(schema, id, (value) => { clear(); changed(value); });
  for (const input of controls.inputs) input.setAttribute("aria-describedby", hint.id);

  let holds = null;
  field.set = (value) => {
    holds = value;
    controls.set(value);
    if (controls.keeps) clear();
  };
  // Say what is wrong, where the meaning stands otherwise: nothing moves.
  field.refuse = (why, value) => {
    holds = value;
    const stays = `it stays ${typeof holds === "object" ? JSON.stringify(holds) : holds}`;
    hint.classList.add("error");
    hint.setAttribute("role", "alert");
    setText(hint, controls.keeps ? `not taken, ${stays} (Esc brings that back): ${[why, sample].filter(Boolean).join(". ")}` : `not taken, ${stays}: ${why}`);
    for (const input of controls.inputs) input.setAttribute("aria-invalid", "true");
    clearTimeout(fading);
    if (controls.keeps) return;
    controls.set(holds);
    fading = setTimeout(clear, SAID_MS); // the field holds a good value again
  };
  if (controls.keeps) {
    controls.inputs[0].addEventListener("keydown", (event) => {
      if (event.key === "Escape") field.set(holds);
    });
  }
  const label = make("label", { htmlFor: id }, name);
  field.element = make("div", { className: `field ${controls.kind}` }, label, ...controls.elements, hint);
  return field;
}

// How a list is written, where the value that is there may not say it.
function sampleOf(schema) {
  const sample = schema.examples?.[0] ?? (schema.type === "array" ? schema.default : null);
  return sample?.length > 0 && typeof sample === "object" ? `Example: ${JSON.stringify(sample)}` : "";
}

function controlsOf(schema, id, changed) {
  if (schema.enum || "const" in schema) return choice(schema.enum ?? [schema.const], id, changed);
  if (schema.type === "boolean") return check(id, changed);
  if (schema.type === "integer" || schema.type === "number") return number(schema, id, changed);
  if (schema.type === "array") return list(id, changed);
  if (schema.format === "color") return colour(id, changed);
  return text(id, changed);
}

function choice(values, id, changed) {
  const select = make("select", { id }, ...values.map((value) => make("option", { value: String(value) }, String(value))));
  select.addEventListener("change", () => changed(values[select.selectedIndex]));
  return { kind: "choice", inputs: [select], elements: [select], set: (value) => { select.value = String(value); } };
}

function check(id, changed) {
  const box = make("input", { id, type: "checkbox" });
  box.addEventListener("change", () => changed(box.checked));
  return { kind: "check", inputs: [box], elements: [box], set: (value) => { box.checked = value; } };
}

function text(id, changed) {
  const input = make("input", { id, type: "text", autocomplete: "off" });
  input.addEventListener("change", () => changed(input.value));
  return { kind: "text", keeps: true, inputs: [input], elements: [input], set: (value) => { input.value = value ?? ""; } };
}

function colour(id, changed) {
  const input = make("input", { id, type: "color" });
  input.addEventListener("input", () => changed(input.value));
  return { kind: "colour", inputs: [input], elements: [input], set: (value) => { input.value = value; } };
}

// Lists of numbers, nested or not, as JSON. What is no JSON goes to the service too, which says what is allowed.
function list(id, changed) {
  const input = make("input", { id, type: "text", autocomplete: "off", spellcheck: false });
  const read = (typed) => {
    try { return JSON.parse(typed); } catch { return typed; }
  };
  input.addEventListener("change", () => changed(read(input.value)));
  return { kind: "text", keeps: true, inputs: [input], elements: [input], set: (value) => { input.value = JSON.stringify(value); } };
}

function number(schema, id, changed) {
  const unit = schema["x-unit"] ?? "";
  const step = schema["x-step"] ?? (schema.type === "integer" ? 1 : "any");
  const low = schema.minimum ?? schema.exclusiveMinimum;
  const high = schema.maximum ?? schema.exclusiveMaximum;
  const bounds = { ...(low !== undefined && { min: low }), ...(high !== undefined && { max: high }) };
  const typed = make("input", { id, type: "number", inputMode: "decimal", autocomplete: "off", ...bounds, step });
  const slider = bounds.min !== undefined && bounds.max !== undefined
    ? make("input", { type: "range", ...bounds, step: step === "any" ? (high - low) / 200 : step }) : null;
  const title = schema.title ?? "value";
  slider?.setAttribute("aria-label", unit ? `${title} in ${unit}` : title);
  slider?.addEventListener("input", () => {
    typed.value = slider.value;
    changed(Number(slider.value));
  });
  // What is typed counts when it is done; the service says whether it is allowed, so "" goes there too, as null.
  typed.addEventListener("change", () => changed(typed.value === "" ? null : Number(typed.value)));
  return {
    kind: slider ? "number slider" : "number",
    inputs: slider ? [slider, typed] : [typed],
    elements: [...(slider ? [slider] : []), typed, make("span", { className: "unit quiet" }, unit)],
    set: (value) => {
      typed.value = value;
      if (slider) slider.value = value;
    },
  };
}
