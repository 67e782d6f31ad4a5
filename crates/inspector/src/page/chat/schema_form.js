// @ts-check
// A form from a JSON Schema: text, numbers, yes or no, choices, lists of choices, objects in
// objects. What has no field of its own is written as JSON.

import { h, newId } from "../base/dom.js";

/** @typedef {any} Schema */
/** @typedef {{ value: unknown } | { missing: true } | { problem: string, at: HTMLElement }} Read */
/** @typedef {{ element: HTMLElement, read(): Read }} Field */

const LONG_TEXT = 120;
const INPUT_TYPES = /** @type {Record<string, string>} */ ({ email: "email", uri: "url", date: "date", "date-time": "datetime-local", time: "time", password: "password" });

/**
 * The choices of a schema, from `enum`, `oneOf` or `anyOf` with constants.
 * @param {Schema} schema
 * @returns {{ value: unknown, label: string, description?: string }[] | undefined}
 */
function choices(schema) {
  if (Array.isArray(schema?.enum)) return schema.enum.map((/** @type {unknown} */ value, /** @type {number} */ place) => ({ value, label: String(schema.enumNames?.[place] ?? value) }));
  const list = schema?.oneOf ?? schema?.anyOf;
  if (!Array.isArray(list) || !list.every((it) => it && "const" in it)) return undefined;
  return list.map((it) => ({ value: it.const, label: String(it.title ?? it.const), description: it.description }));
}

/** @param {Schema} schema */
function kind(schema) {
  const type = Array.isArray(schema?.type) ? schema.type.find((/** @type {string} */ it) => it !== "null") : schema?.type;
  return type ?? (schema?.properties ? "object" : undefined);
}

/**
 * The field of one value.
 * @param {Schema} schema
 * @param {string} name
 * @param {boolean} isRequired
 * @returns {Field}
 */
export function fieldOf(schema, name, isRequired) {
  const label = String(schema?.title ?? name);
  const options = choices(schema);
  if (options) return choiceField(schema, label, options, isRequired);
  switch (kind(schema)) {
    case "object":
      return schema.properties ? objectField(schema, label) : jsonField(schema, label, isRequired);
    case "boolean":
      return checkField(schema, label);
    case "string":
    case "number":
    case "integer":
      return inputField(schema, label, isRequired);
    case "array": {
      const items = choices(schema.items);
      if (items) return listField(schema, label, items);
      if (kind(schema.items) === "string") return linesField(schema, label, isRequired);
      return jsonField(schema, label, isRequired);
    }
    default:
      return jsonField(schema, label, isRequired);
  }
}

/**
 * @param {Schema} schema
 * @param {string} label
 * @param {HTMLElement} control
 * @param {boolean} isRequired
 */
function row(schema, label, control, isRequired) {
  const id = (control.id = newId());
  const hint = schema?.description ? h("p.hint", { id: `${id}-hint` }, schema.description) : null;
  const error = h("p.field-error", { id: `${id}-error`, role: "alert" });
  control.setAttribute("aria-describedby", [hint?.id, error.id].filter(Boolean).join(" "));
  return h("div.field", null, h("label", { for: id }, label, isRequired && h("span.required", { "aria-hidden": "true" }, " *")), hint, control, error);
}

/** @param {string} problem @param {HTMLElement} at @returns {Read} */
const bad = (problem, at) => ({ problem, at });

/** @param {Schema} schema @param {string} label @param {boolean} isRequired @returns {Field} */
function inputField(schema, label, isRequired) {
  const type = kind(schema);
  const isText = type === "string";
  const isLong = isText && !schema.format && ((schema.maxLength ?? 0) > LONG_TEXT || String(schema.default ?? "").length > LONG_TEXT);
  const shared = { required: isRequired, minlength: schema.minLength, maxlength: schema.maxLength };
  const control = isLong
    ? h("textarea", { ...shared, rows: 4 })
    : h("input", { ...shared, type: isText ? INPUT_TYPES[schema.format] ?? "text" : "number", min: schema.minimum ?? schema.exclusiveMinimum, max: schema.maximum ?? schema.exclusiveMaximum, step: type === "integer" ? 1 : isText ? null : "any", autocomplete: "off" });
  if (schema.default !== undefined && schema.default !== null) control.value = String(schema.default);
  return {
    element: row(schema, label, control, isRequired),
    read() {
      if (!control.validity.valid && !control.validity.valueMissing) return bad(control.validationMessage, control);
      if (control.value === "") return isRequired && !(isText && !schema.minLength && schema.default === "") ? bad("Fill in this field.", control) : { missing: true };
      const problem = isText ? textProblem(schema, control.value) : numberProblem(schema, Number(control.value));
      if (problem) return bad(problem, control);
      return { value: isText ? control.value : Number(control.value) };
    },
  };
}

/** @param {Schema} schema @param {string} text */
function textProblem(schema, text) {
  const { minLength, maxLength } = schema;
  if (minLength !== undefined && [...text].length < minLength) return `At least ${minLength} characters.`;
  if (maxLength !== undefined && [...text].length > maxLength) return `At most ${maxLength} characters.`;
  return undefined;
}

/** @param {Schema} schema @param {number} value */
function numberProblem(schema, value) {
  if (!Number.isFinite(value)) return "Enter a number.";
  if (kind(schema) === "integer" && !Number.isInteger(value)) return "Enter a whole number.";
  if (schema.exclusiveMinimum !== undefined && value <= schema.exclusiveMinimum) return `More than ${schema.exclusiveMinimum}.`;
  if (schema.exclusiveMaximum !== undefined && value >= schema.exclusiveMaximum) return `Less than ${schema.exclusiveMaximum}.`;
  return undefined;
}

/** @param {Schema} schema @param {string} label @returns {Field} */
function checkField(schema, label) {
  const control = h("input", { type: "checkbox", id: newId() });
  control.checked = schema.default === true;
  const hint = schema.description ? h("p.hint", { id: `${control.id}-hint` }, schema.description) : null;
  if (hint) control.setAttribute("aria-describedby", hint.id);
  return { element: h("div.field.check", null, h("label", null, control, " ", label), hint), read: () => ({ value: control.checked }) };
}

/**
 * @param {Schema} schema
 * @param {string} label
 * @param {{ value: unknown, label: string, description?: string }[]} options
 * @param {boolean} isRequired
 * @returns {Field}
 */
function choiceField(schema, label, options, isRequired) {
  const control = h("select", { required: isRequired }, h("option", { value: "" }, isRequired ? "Choose…" : "Not set"), options.map((option, place) => h("option", { value: place, title: option.description }, option.label)));
  const preset = options.findIndex((option) => option.value === schema.default);
  if (preset >= 0) control.value = String(preset);
  return {
    element: row(schema, label, control, isRequired),
    read: () => (control.value !== "" ? { value: options[Number(control.value)].value } : isRequired ? bad("Choose one.", control) : { missing: true }),
  };
}

/**
 * @param {Schema} schema
 * @param {string} label
 * @param {{ value: unknown, label: string }[]} options
 * @returns {Field}
 */
function listField(schema, label, options) {
  const preset = Array.isArray(schema.default) ? schema.default : [];
  const boxes = options.map((option) => {
    const box = h("input", { type: "checkbox" });
    box.checked = preset.includes(option.value);
    return box;
  });
  const error = h("p.field-error", { role: "alert" });
  const element = h("fieldset.field", null, h("legend", null, label), schema.description && h("p.hint", null, schema.description), options.map((option, place) => h("label", null, boxes[place], " ", option.label)), error);
  return {
    element,
    read() {
      const value = options.filter((_, place) => boxes[place].checked).map((option) => option.value);
      if (value.length < (schema.minItems ?? 0)) return bad(`Choose at least ${schema.minItems}.`, boxes[0]);
      if (value.length > (schema.maxItems ?? Infinity)) return bad(`Choose at most ${schema.maxItems}.`, boxes[0]);
      return { value };
    },
  };
}

/** A list of texts, one a line. @param {Schema} schema @param {string} label @param {boolean} isRequired @returns {Field} */
function linesField(schema, label, isRequired) {
  const control = h("textarea", { rows: 3, placeholder: "One per line" });
  if (Array.isArray(schema.default)) control.value = schema.default.join("\n");
  return {
    element: row(schema, label, control, isRequired),
    read() {
      const value = control.value.split("\n").map((line) => line.trim()).filter(Boolean);
      if (value.length < (schema.minItems ?? (isRequired ? 1 : 0))) return bad("Enter at least one line.", control);
      return value.length === 0 && !isRequired ? { missing: true } : { value };
    },
  };
}

/** @param {Schema} schema @param {string} label @param {boolean} isRequired @returns {Field} */
function jsonField(schema, label, isRequired) {
  const control = h("textarea.mono", { rows: 5, spellcheck: "false", placeholder: "JSON" });
  if (schema?.default !== undefined) control.value = JSON.stringify(schema.default, null, 2);
  return {
    element: row(schema, label, control, isRequired),
    read() {
      if (control.value.trim() === "") return isRequired ? bad("Enter a JSON value.", control) : { missing: true };
      try {
        return { value: JSON.parse(control.value) };
      } catch (error) {
        return bad(`Not valid JSON: ${/** @type {Error} */ (error).message}`, control);
      }
    },
  };
}

/** @param {Schema} schema @param {string} label @returns {Field} */
function objectField(schema, label) {
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const fields = Object.entries(schema.properties).map(([name, part]) => ({ name, field: fieldOf(part, name, required.has(name)) }));
  const element = h("fieldset.group", null, label && h("legend", null, label), fields.map(({ field }) => field.element));
  return {
    element,
    read() {
      /** @type {[string, unknown][]} */
      const members = [];
      /** @type {Read | undefined} */
      let first;
      for (const { name, field } of fields) {
        const read = field.read();
        showProblem(field, "problem" in read && !first ? read.problem : "");
        if ("problem" in read) first ??= read;
        else if ("value" in read) members.push([name, read.value]);
      }
      // Not by assignment: a member may be called `__proto__`.
      return first ?? { value: Object.fromEntries(members) };
    },
  };
}

/** @param {Field} field @param {string} problem */
function showProblem(field, problem) {
  const place = field.element.querySelector(":scope > .field-error");
  if (place) place.textContent = problem;
}

/**
 * The form of a whole value.
 * @param {Schema} schema
 */
export function schemaForm(schema) {
  const field = fieldOf({ ...schema, title: kind(schema) === "object" ? "" : schema?.title }, "Answer", true);
  return {
    element: field.element,
    /** The value; `undefined` after showing what is wrong and going there. @returns {{ value: unknown } | undefined} */
    read() {
      const read = field.read();
      if ("problem" in read) {
        showProblem(field, read.problem);
        read.at.setAttribute("aria-invalid", "true");
        read.at.addEventListener("input", () => read.at.removeAttribute("aria-invalid"), { once: true });
        read.at.focus();
        return undefined;
      }
      showProblem(field, "");
      return "value" in read ? read : { value: {} };
    },
  };
}
