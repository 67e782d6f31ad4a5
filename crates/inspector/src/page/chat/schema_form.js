// @ts-check
// A form from a JSON Schema: text, numbers, yes or no, choices, lists of choices, and nested
// objects. A value without a field for its type is written as JSON.
//
// The form of an answer begins empty. The schema's defaults are suggestions that the reader can
// take, because a value that the reader never touched is not the reader's answer.

import { h, newId } from "../base/dom.js";

/** @typedef {any} Schema */
/** @typedef {{ value: unknown } | { missing: true } | { problem: string, at: HTMLElement }} Read */
/** @typedef {{ element: HTMLElement, read(): Read, fill(value: any): void }} Field */
/** @typedef {{ isRequired?: boolean, isAnswer?: boolean }} FieldOptions `isAnswer`: defaults are suggestions */

const LONG_TEXT = 120;
const INPUT_TYPES = /** @type {Record<string, string>} */ ({ email: "email", uri: "url", date: "date", "date-time": "datetime-local", time: "time", password: "password" });

/**
 * Returns the choices of a schema, from `enum`, `oneOf` or `anyOf` with constants.
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
 * Builds the field of one value, with its default or, in an answer, with a suggestion.
 * @param {Schema} schema
 * @param {string} name
 * @param {FieldOptions} options
 * @returns {Field}
 */
export function fieldOf(schema, name, options) {
  const field = emptyField(schema, name, options);
  const value = schema?.default;
  if (value === undefined || value === null) return field;
  if (options.isAnswer) field.element.append(suggestion(value, field));
  else field.fill(value);
  return field;
}

/**
 * @param {unknown} value
 * @param {Field} field
 */
function suggestion(value, field) {
  const words = value === true ? "yes" : value === false ? "no" : typeof value === "string" ? value : JSON.stringify(value);
  return h("p.hint.suggestion", null, h("span", null, "Suggested: ", words), h("button.quiet", { type: "button", on: { click: () => field.fill(value) } }, "Use it"));
}

/**
 * @param {Schema} schema
 * @param {string} name
 * @param {FieldOptions} options
 * @returns {Field}
 */
function emptyField(schema, name, { isRequired = false, isAnswer = false }) {
  const label = String(schema?.title ?? name);
  const options = choices(schema);
  if (options) return choiceField(schema, label, options, isRequired);
  switch (kind(schema)) {
    case "object":
      return schema.properties ? objectField(schema, label, isAnswer) : jsonField(schema, label, isRequired);
    case "boolean":
      return switchField(schema, label, isRequired);
    case "string":
    case "number":
    case "integer":
      return inputField(schema, label, isRequired);
    case "array": {
      const items = choices(schema.items);
      if (items) return listField(schema, label, items, isRequired);
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
  /** Whether the empty text came from the schema. */
  let isEmptyText = false;
  return {
    element: row(schema, label, control, isRequired),
    fill(value) {
      control.value = String(value);
      isEmptyText = isText && value === "";
    },
    read() {
      if (!control.validity.valid && !control.validity.valueMissing) return bad(control.validationMessage, control);
      if (control.value === "") return isEmptyText ? { value: "" } : isRequired ? bad("Fill in this field.", control) : { missing: true };
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

/**
 * Builds a choice of yes, no, or no answer.
 * @param {Schema} schema
 * @param {string} label
 * @param {boolean} isRequired
 * @returns {Field}
 */
function switchField(schema, label, isRequired) {
  const name = newId();
  const [yes, no] = ["yes", "no"].map((value) => h("input", { type: "radio", name, value }));
  const element = group(schema, label, isRequired, [h("div.options", null, h("label", null, yes, " Yes"), h("label", null, no, " No"))]);
  return {
    element,
    fill(value) {
      yes.checked = value === true;
      no.checked = value === false;
    },
    read() {
      if (yes.checked || no.checked) return { value: yes.checked };
      return isRequired ? bad("Choose yes or no.", yes) : { missing: true };
    },
  };
}

/**
 * Builds a field with several controls.
 * @param {Schema} schema
 * @param {string} label
 * @param {boolean} isRequired
 * @param {HTMLElement[]} controls
 */
function group(schema, label, isRequired, controls) {
  const id = newId();
  const hint = schema.description ? h("p.hint", { id: `${id}-hint` }, schema.description) : null;
  return h("fieldset.field", { "aria-describedby": hint?.id }, h("legend", null, label, isRequired && h("span.required", { "aria-hidden": "true" }, " *")), hint, controls, h("p.field-error", { role: "alert" }));
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
  return {
    element: row(schema, label, control, isRequired),
    fill(value) {
      const place = options.findIndex((option) => option.value === value);
      if (place >= 0) control.value = String(place);
    },
    read: () => (control.value !== "" ? { value: options[Number(control.value)].value } : isRequired ? bad("Choose one.", control) : { missing: true }),
  };
}

/**
 * @param {Schema} schema
 * @param {string} label
 * @param {{ value: unknown, label: string }[]} options
 * @param {boolean} isRequired
 * @returns {Field}
 */
function listField(schema, label, options, isRequired) {
  const boxes = options.map(() => h("input", { type: "checkbox" }));
  let isTouched = false;
  const element = group(schema, label, isRequired, options.map((option, place) => h("label", null, boxes[place], " ", option.label)));
  element.addEventListener("change", () => (isTouched = true));
  return {
    element,
    fill(value) {
      isTouched = true;
      options.forEach((option, place) => (boxes[place].checked = Array.isArray(value) && value.includes(option.value)));
    },
    read() {
      const value = options.filter((_, place) => boxes[place].checked).map((option) => option.value);
      if (value.length === 0 && !isTouched && !isRequired) return { missing: true };
      if (value.length < (schema.minItems ?? 0)) return bad(`Choose at least ${schema.minItems}.`, boxes[0]);
      if (value.length > (schema.maxItems ?? Infinity)) return bad(`Choose at most ${schema.maxItems}.`, boxes[0]);
      return { value };
    },
  };
}

/** Builds a list of texts, one per line. @param {Schema} schema @param {string} label @param {boolean} isRequired @returns {Field} */
function linesField(schema, label, isRequired) {
  const control = h("textarea", { rows: 3, placeholder: "One per line" });
  return {
    element: row(schema, label, control, isRequired),
    fill: (value) => (control.value = [].concat(value).join("\n")),
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
  return {
    element: row(schema, label, control, isRequired),
    fill: (value) => (control.value = JSON.stringify(value, null, 2)),
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

/** @param {Schema} schema @param {string} label @param {boolean} isAnswer @returns {Field} */
function objectField(schema, label, isAnswer) {
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const fields = Object.entries(schema.properties).map(([name, part]) => ({ name, field: fieldOf(part, name, { isRequired: required.has(name), isAnswer }) }));
  const element = h("fieldset.group", null, label && h("legend", null, label), fields.map(({ field }) => field.element));
  return {
    element,
    fill(value) {
      for (const { name, field } of fields) if (value && Object.hasOwn(value, name)) field.fill(value[name]);
    },
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
      // `fromEntries`, not an assignment: a member may be named `__proto__`.
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
 * Builds the form of a whole value.
 * @param {Schema} schema
 * @param {{ isAnswer?: boolean }} [options] `isAnswer`: the form answers a question and begins empty
 */
export function schemaForm(schema, { isAnswer = false } = {}) {
  const field = fieldOf({ ...schema, title: kind(schema) === "object" ? "" : schema?.title }, "Answer", { isRequired: true, isAnswer });
  return {
    element: field.element,
    /** Returns the value. If it is invalid, shows the problem, moves the focus there and returns `undefined`. @returns {{ value: unknown } | undefined} */
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
